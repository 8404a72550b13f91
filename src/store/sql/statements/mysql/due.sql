-- Delayed records whose time has come. The first row is how often the cluster has changed.
SELECT cluster_changes, NULL, -1, '', '', '', '', '', NULL, 0, 0 FROM {outbox}meta
UNION ALL (SELECT id, event_id, partition_no, record_key, handler, record_type, content_type, payload, headers,
       attempts, {age:created_at}
FROM {outbox}record FORCE INDEX ({index}record_pending)
WHERE partition_no IN ({partitions}) AND status = 4 AND next_attempt_at <= {now} AND id NOT IN ({skip})
ORDER BY partition_no, status, next_attempt_at, id LIMIT {limit})
