-- Scheduling from SQL. There is no function for it here: services in other languages run the
-- statement below in their own transaction, with the partition number from an xxh3 library:
-- xxh3_64(UTF-8 bytes of the key, seed 0) % 256, as an unsigned number ("order-1" gives 118).
--
--   INSERT INTO {outbox}record (event_id, partition_no, record_key, handler, record_type, payload, headers)
--   SELECT :event_id, :partition_no, :record_key, handler, :record_type, :payload, :headers
--   FROM {outbox}handler
--   WHERE record_type IN (:record_type, '*')
--   GROUP BY handler
--   ORDER BY handler
--
-- One record for each handler. No row inserted means that no handler is listed: treat it as an error.
-- :event_id    16 bytes of a uuid made by the caller, as UUID() would differ from row to row
-- :record_key  1 to 255 bytes of UTF-8
-- :payload     JSON as UTF-8
-- :headers     a JSON object of strings, or NULL

UPDATE {outbox}meta SET schema_version = 2 WHERE id = 1;
