-- Step 1 of a claim: the candidates that no other claim is about to take. Only rows are locked, by their ids.
SELECT id FROM {outbox}record FORCE INDEX (PRIMARY)
WHERE id IN ({ids}) AND (status = 0 OR status = 4 AND next_attempt_at <= {now})
LIMIT {limit} FOR UPDATE SKIP LOCKED
