-- Records that are not due yet, among the delayed records of a partition, each with its dedup key if that is still
-- there and its own: a DELETE of a missing key would lock the keys beside it. The statement itself takes no locks,
-- because it would lock each row that it passes.
SELECT r.id, d.dedup_key, CAST(r.created_at AS CHAR) FROM {outbox}record r FORCE INDEX ({index}record_pending)
LEFT JOIN {outbox}dedup d FORCE INDEX (PRIMARY) ON d.dedup_key = r.dedup_key AND d.created_at <= r.created_at
WHERE r.partition_no = $1 AND r.status = 4 AND r.next_attempt_at > {now} AND r.record_key = $2 AND r.{named} = $3
  AND r.attempts = 0 AND r.last_error IS NULL AND r.lock_owner IS NULL
