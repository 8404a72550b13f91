-- Takes records out of the pending set without counting an attempt: behind a stopped lane, or unroutable.
UPDATE {outbox}record {by:PRIMARY} SET status = 3, next_attempt_at = NULL
WHERE id IN ({ids}) AND status IN (0, 4)
