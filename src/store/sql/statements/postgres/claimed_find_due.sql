-- Step 1 of a claim: delayed records whose time has come, and claimed records whose lease has ended. The time of the
-- statement is a bound of the index; clock_timestamp() would be evaluated for each delayed record.
SELECT id FROM {outbox}record
WHERE status = 4 AND partition_no IN ({partitions}) AND next_attempt_at <= statement_timestamp() AND lock_crashes {suspected}{handlers}
LIMIT {limit} FOR UPDATE SKIP LOCKED
