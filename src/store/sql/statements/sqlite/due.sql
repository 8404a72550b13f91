-- Delayed records whose time has come. The first row is how often the cluster has changed.
SELECT cluster_changes, NULL, -1, '', '', '', '', x'', NULL, 0, 0 FROM {outbox}meta
UNION ALL SELECT * FROM (SELECT id, event_id, partition_no, record_key, handler, record_type, content_type, payload, headers,
       attempts, {age:created_at}
FROM {outbox}record INDEXED BY {index}record_delayed
WHERE partition_no IN ({partitions}) AND status = 4 AND next_attempt_at <= {now} AND id NOT IN ({skip})
ORDER BY partition_no, next_attempt_at LIMIT {limit})
