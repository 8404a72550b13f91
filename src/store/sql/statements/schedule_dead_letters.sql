-- Dead letters are scheduled again, in their order: as new records of the same events.
INSERT INTO {outbox}record (event_id, partition_no, record_key, handler, record_type, content_type, payload, headers)
SELECT event_id, partition_no, record_key, handler, record_type, content_type, payload, headers
FROM {outbox}dead_letter {by:PRIMARY} WHERE id IN ({ids}) ORDER BY id
