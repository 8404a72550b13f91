-- The tracked calls of records that are gone. A condition of the DELETE itself would wait on MySQL and MariaDB
-- for whoever locks the record, as a transaction that cancels it does.
SELECT s.record_id FROM {outbox}start s {by:{index}start_partition}
WHERE s.partition_no IN ({partitions}) AND NOT EXISTS (SELECT 1 FROM {outbox}record r {by:PRIMARY} WHERE r.id = s.record_id)
