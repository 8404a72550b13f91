-- A call is about to begin. The crashes of earlier calls of the record stay.
INSERT INTO {outbox}start (record_id, partition_no, instance_id) VALUES ($1, $2, $3)
ON DUPLICATE KEY UPDATE instance_id = VALUES(instance_id)
