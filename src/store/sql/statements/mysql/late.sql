-- Pending records by their ids.
SELECT id, event_id, partition_no, record_key, handler, record_type, content_type, payload, headers,
       attempts, {age:created_at}, {age:expires_at}
FROM {outbox}record FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status = 0
