-- Rows of those gone for long. Called by ClusterStore::forget.
DELETE FROM {outbox}instance
WHERE state IN ('STOPPED', 'DEAD') AND last_beat_at < {ago:$1}
  AND instance_id NOT IN (SELECT owner FROM {outbox}partition WHERE owner IS NOT NULL)
