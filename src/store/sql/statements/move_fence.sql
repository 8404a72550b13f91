-- The fence: moves the counter on, or finds it gone, or finds itself on another server than the one on which the
-- instance has joined. First statement of every settle.
UPDATE {outbox}fence {by:PRIMARY} SET counter = counter + 1
WHERE instance_id = $1 AND slot = $2 AND counter = $3 AND {server} = $4
