-- Crashes of the partitions' owners (without a record), and of calls that had not ended.
SELECT {int:partition_no}, {int:crashes}, {int:NULL} AS record_id FROM {outbox}partition
WHERE crashes > 0 AND partition_no IN ({partitions})
UNION ALL
SELECT {int:partition_no}, {int:crashes}, record_id FROM {outbox}start WHERE crashes > 0 AND partition_no IN ({partitions})
