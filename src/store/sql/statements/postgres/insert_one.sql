-- One record of a producer.
INSERT INTO {outbox}record (event_id, partition_no, record_key, handler, record_type, content_type, payload, headers{extra_columns})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8{extra})
