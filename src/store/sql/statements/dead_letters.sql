-- The dead letters of the list, with their payloads.
SELECT id, event_id, {int:partition_no}, record_key, handler, record_type, content_type, payload, headers,
       {int:attempts}, target, error, error_class, error_kind, {age:created_at}, {age:failed_at}
FROM {outbox}dead_letter {by:PRIMARY} WHERE id IN ({ids}) ORDER BY id
