-- Kept records of some partitions whose retention is over. Deleted by SqlStore::purge_round.
SELECT id FROM {outbox}record {by:{index}record_pending}
WHERE partition_no BETWEEN $1 AND $2 AND status = 1 AND completed_at < {ago:$3} LIMIT $4
