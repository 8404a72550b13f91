-- Failed records are delivered again with another payload.
UPDATE {outbox}record {by:PRIMARY} SET status = 0, attempts = 0, next_attempt_at = NULL, expires_at = NULL, payload = $1
WHERE id IN ({ids}) AND status = 2
