-- A failed record is delivered again.
UPDATE {outbox}record {by:PRIMARY} SET status = 0, attempts = 0, next_attempt_at = NULL
WHERE id = $1 AND status = 2
