-- Out of the pending set, no attempt counted: behind a stopped lane, or unroutable.
UPDATE {outbox}record {by:PRIMARY} SET status = 3, next_attempt_at = NULL
WHERE id IN ({ids}) AND status IN (0, 4)
