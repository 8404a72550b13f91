-- Candidates of a claim: pending records of these partitions. The index is read without locks: a lock of an index entry
-- would stay where another claim has the row, whose second step would then wait. Without ORDER BY, which MariaDB would
-- sort for; the index has the order of the partitions.
SELECT id FROM {outbox}record FORCE INDEX ({index}record_pending)
WHERE partition_no IN ({partitions}) AND status = 0 AND next_attempt_at IS NULL{handlers}
LIMIT {candidates}
