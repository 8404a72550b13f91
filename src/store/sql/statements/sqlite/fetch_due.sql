-- Delayed records whose time has come, and the count of the cluster's changes in a row that is no record.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, cluster_changes FROM {outbox}meta
UNION ALL SELECT * FROM (SELECT id, event_id, partition_no, record_key, handler, record_type, content_type, payload, headers,
       attempts, {age:created_at}, {age:expires_at}, NULL
FROM {outbox}record INDEXED BY {index}record_delayed
WHERE partition_no IN ({partitions}) AND status = 4 AND next_attempt_at <= {now} AND id NOT IN ({skip}){handlers}
ORDER BY partition_no, next_attempt_at LIMIT {limit})
