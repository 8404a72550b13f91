-- Closes the fence rows of an instance, so that its later writes find no counter. The statement waits for a settle
-- that holds a row. A settle that waits for this statement is then refused.
UPDATE {outbox}fence {by:PRIMARY} SET counter = -1 WHERE instance_id = $1
