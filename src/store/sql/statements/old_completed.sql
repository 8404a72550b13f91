-- Kept records whose retention is over.
SELECT id FROM {outbox}record WHERE partition_no IN ({partitions}) AND status = 1 AND completed_at < {ago:$1} LIMIT $2
