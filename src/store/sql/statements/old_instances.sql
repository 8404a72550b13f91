-- Instances that ended long ago. Their rows never change again, because an ended instance claims nothing.
SELECT instance_id FROM {outbox}instance
WHERE state IN ('STOPPED', 'DEAD') AND last_beat_at < {ago:$1}
  AND instance_id NOT IN (SELECT owner FROM {outbox}partition WHERE owner IS NOT NULL)
LIMIT $2
