-- Those of these dead letters that are there: nobody else takes them.
SELECT id FROM {outbox}dead_letter {by:PRIMARY} WHERE id IN ({ids}) ORDER BY id {lock}
