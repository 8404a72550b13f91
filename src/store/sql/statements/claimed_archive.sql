-- Delivered records move to the archive: copied here, then deleted by claimed_delete.
INSERT INTO {outbox}archive
       (id, created_at, event_id, attempts, partition_no, record_key, handler, record_type, content_type, payload, headers)
SELECT id, created_at, event_id, attempts, partition_no, record_key, handler, record_type, content_type, payload, headers
FROM {outbox}record {by:PRIMARY}
WHERE id IN ({ids}) AND lock_token = {token} AND lock_owner = {instance} {lock}
