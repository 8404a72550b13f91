-- Records as they are, for a settle that found some of them changed.
SELECT id, {int:attempts}, {int:status} FROM {outbox}record {by:PRIMARY} WHERE id IN ({ids}) {lock}
