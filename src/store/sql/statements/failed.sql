-- The records of the list that have failed, with their payloads.
SELECT id, event_id, {int:partition_no}, record_key, handler, record_type, {int:attempts},
       last_error, content_type, payload, headers, {age:created_at}
FROM {outbox}record {by:PRIMARY} WHERE id IN ({ids}) AND status = 2 ORDER BY id
