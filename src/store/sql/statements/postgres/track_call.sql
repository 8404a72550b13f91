-- A call is about to begin. What earlier calls of the record have met stays.
INSERT INTO {outbox}start (record_id, partition_no, instance_id) VALUES ($1, $2, $3)
ON CONFLICT (record_id) DO UPDATE SET instance_id = excluded.instance_id
