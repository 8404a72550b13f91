-- The present state of records, for a settle that has found some of them changed.
SELECT id, {int:attempts}, {int:status} FROM {outbox}record {by:PRIMARY} WHERE id IN ({ids}) {lock}
