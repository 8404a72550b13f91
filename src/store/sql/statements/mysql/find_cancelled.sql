-- Records that are not due yet, among the delayed records of a partition. It takes no locks, because it would lock each
-- row that it passes.
SELECT id, dedup_key FROM {outbox}record FORCE INDEX ({index}record_pending)
WHERE partition_no = $1 AND status = 4 AND next_attempt_at > {now} AND record_key = $2 AND {named} = $3
  AND attempts = 0 AND last_error IS NULL AND lock_owner IS NULL
