-- Candidates of a claim: pending records of these partitions. The index is read without locks, because the lock of an
-- index entry would stay although another claim has the row, and the second step of that claim would wait. There is no
-- ORDER BY, for which MariaDB would sort; the index has the order of the partitions.
SELECT id FROM {outbox}record FORCE INDEX ({index}record_pending)
WHERE partition_no IN ({partitions}) AND status = 0 AND next_attempt_at IS NULL{handlers}
LIMIT {candidates}
