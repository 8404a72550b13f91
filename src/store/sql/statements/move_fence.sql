-- The fence: moves the counter on, or finds it gone. First statement of every settle.
UPDATE {outbox}fence {by:PRIMARY} SET counter = counter + 1 WHERE instance_id = $1 AND slot = $2 AND counter = $3
