-- Closes the fence rows of an instance: whatever it still writes finds no counter. It waits for a
-- settle that holds a row, and a settle that waits for it is refused.
UPDATE {outbox}fence {by:PRIMARY} SET counter = -1 WHERE instance_id = $1
