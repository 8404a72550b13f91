-- Candidates of a claim: delayed records whose time has come, and claimed records whose lease has ended. Without locks
-- and without ORDER BY, as in claimed_find_pending.
SELECT id FROM {outbox}record FORCE INDEX ({index}record_pending)
WHERE partition_no IN ({partitions}) AND status = 4 AND next_attempt_at <= {now} AND lock_crashes {suspected}{handlers}
LIMIT {candidates}
