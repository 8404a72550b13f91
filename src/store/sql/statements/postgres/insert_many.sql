-- Records of a producer, in their order. An array of one element is the value of all records.
INSERT INTO {outbox}record (event_id, partition_no, record_key, handler, record_type, content_type, payload, headers{extra_columns})
SELECT event_id, partition_no, record_key, coalesce(handler, ($4::text[])[1]), coalesce(record_type, ($5::text[])[1]),
       coalesce(content_type, ($6::text[])[1]), payload, $8::text{extra}
FROM unnest($1::uuid[], $2::int2[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[])
     WITH ORDINALITY AS x (event_id, partition_no, record_key, handler, record_type, content_type, payload, position)
ORDER BY position
