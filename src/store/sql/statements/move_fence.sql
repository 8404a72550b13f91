-- The fence: moves the counter on. It finds no row if the counter has another value, or if this is not the server on
-- which the instance has joined. First statement of every settle.
UPDATE {outbox}fence {by:PRIMARY} SET counter = counter + 1
WHERE instance_id = $1 AND slot = $2 AND counter = $3 AND {server} = $4
