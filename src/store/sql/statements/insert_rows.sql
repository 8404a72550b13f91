-- Records of a producer, on databases that take no lists as parameters: {rows} are groups of parameters.
INSERT INTO {outbox}record (event_id, partition_no, record_key, handler, record_type, content_type, payload, headers{extra_columns})
VALUES {rows}
