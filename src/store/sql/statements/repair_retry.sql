-- Failed records are delivered again.
UPDATE {outbox}record {by:PRIMARY} SET status = 0, attempts = 0, next_attempt_at = NULL, expires_at = NULL
WHERE id IN ({ids}) AND status = 2
