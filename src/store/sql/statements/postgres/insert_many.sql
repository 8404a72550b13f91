-- Records of a producer, in their order.
INSERT INTO {outbox}record (event_id, partition_no, record_key, handler, record_type, content_type, payload, headers{extra_columns})
SELECT event_id, partition_no, record_key, handler, record_type, content_type, payload, headers{extra}
FROM unnest($1::uuid[], $2::int2[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::text[])
     WITH ORDINALITY AS x (event_id, partition_no, record_key, handler, record_type, content_type, payload, headers, position)
ORDER BY position
