-- Step 1 of a claim: delayed records whose time has come, and claimed records whose lease has ended.
SELECT id FROM {outbox}record INDEXED BY {index}record_delayed
WHERE status = 4 AND partition_no IN ({partitions}) AND next_attempt_at <= {now} AND lock_crashes {suspected}{handlers}
ORDER BY partition_no, next_attempt_at LIMIT {limit}
