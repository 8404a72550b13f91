-- The tracked calls of records that no longer exist. If this was a condition of the DELETE, the DELETE would wait on
-- MySQL and MariaDB for each transaction that locks such a record, for example one that cancels it.
SELECT s.record_id FROM {outbox}start s {by:{index}start_partition}
WHERE s.partition_no IN ({partitions}) AND NOT EXISTS (SELECT 1 FROM {outbox}record r {by:PRIMARY} WHERE r.id = s.record_id)
