-- Cancels records that are not due yet. No SELECT comes first, because the write would then fail if another connection
-- has written since.
DELETE FROM {outbox}record INDEXED BY {index}record_delayed_key
WHERE partition_no = $1 AND record_key = $2 AND {named} = $3 AND status = 4 AND attempts = 0 AND last_error IS NULL
  AND lock_owner IS NULL AND next_attempt_at > {now}
RETURNING dedup_key, CAST(created_at AS TEXT)
