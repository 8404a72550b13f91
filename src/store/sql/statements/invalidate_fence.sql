-- Makes a settle whose reply was lost harmless if it has not run yet: its counter is gone. By two,
-- so that a settle that did run (one) and an invalidation whose own reply was lost can be told apart.
UPDATE {outbox}fence {by:PRIMARY} SET counter = counter + 2 WHERE instance_id = $1 AND slot = $2 AND counter = $3
