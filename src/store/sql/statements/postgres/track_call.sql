-- A call is about to begin. The crashes of earlier calls of the record stay.
INSERT INTO {outbox}start (record_id, partition_no, instance_id) VALUES ($1, $2, $3)
ON CONFLICT (record_id) DO UPDATE SET instance_id = excluded.instance_id
