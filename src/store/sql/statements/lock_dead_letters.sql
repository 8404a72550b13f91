-- Locks the dead letters of the list that exist, so that no other transaction takes them.
SELECT id FROM {outbox}dead_letter {by:PRIMARY} WHERE id IN ({ids}) ORDER BY id {lock}
