-- A record that has failed for good is copied to the dead letters with its cause, once. A settle then completes it.
INSERT INTO {outbox}dead_letter
       (id, created_at, event_id, partition_no, record_key, handler, record_type, content_type, payload, headers,
        attempts, target, error, error_class, error_kind)
SELECT r.id, r.created_at, r.event_id, r.partition_no, r.record_key, r.handler, r.record_type, r.content_type, r.payload, r.headers,
       $1, $2, $3, $4, $5
FROM {outbox}record AS r {by:PRIMARY}
WHERE r.id = $6 AND NOT EXISTS (SELECT 1 FROM {outbox}dead_letter AS there WHERE there.id = r.id)
