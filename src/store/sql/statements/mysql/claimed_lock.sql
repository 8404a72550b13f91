-- Step 1 of a claim: those of the candidates that nobody else is about to take. Only rows are locked, by their ids.
SELECT id FROM {outbox}record FORCE INDEX (PRIMARY)
WHERE id IN ({ids}) AND (status = 0 OR status = 4 AND next_attempt_at <= {now})
LIMIT {limit} FOR UPDATE SKIP LOCKED
