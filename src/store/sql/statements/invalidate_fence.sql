-- Makes a settle whose reply was lost ineffective if it has not run yet: its counter no longer matches. The counter
-- moves by two, so that it differs from that of a settle that did run (one), even if this reply is lost, too.
UPDATE {outbox}fence {by:PRIMARY} SET counter = counter + 2 WHERE instance_id = $1 AND slot = $2 AND counter = $3
