-- Records that have failed for good.
SELECT id, event_id, {int:partition_no}, record_key, handler, record_type, {int:attempts}, last_error
FROM {outbox}record WHERE status = 2 AND id > $1 ORDER BY id LIMIT $2
