-- Pending records of the partitions in turn, each from its head, without those in flight.
SELECT id, event_id, partition_no, record_key, handler, record_type, content_type, payload, headers,
       attempts, {age:created_at}, {age:expires_at}
FROM {outbox}record FORCE INDEX ({index}record_pending)
WHERE partition_no IN ({partitions}) AND status = 0 AND next_attempt_at IS NULL AND id NOT IN ({skip}){handlers}
ORDER BY partition_no, status, next_attempt_at, id LIMIT {limit}
