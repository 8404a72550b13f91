-- Pending records in id order, by the primary key.
SELECT id, event_id, partition_no, record_key, handler, record_type, content_type, payload, headers,
       attempts, {age:created_at}, {age:expires_at}
FROM {outbox}record NOT INDEXED
WHERE id >= {from} AND id < {to} AND status = 0 AND partition_no IN ({partitions}) AND id NOT IN ({skip}){handlers}
ORDER BY id LIMIT {limit}
