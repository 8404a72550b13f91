-- The last rows below the first id of a scan: records in flight, and records that were committed after that id was
-- read. Rows that are not pending here are null.
SELECT IF(status = 0 AND partition_no IN ({partitions}), id, NULL)
FROM {outbox}record FORCE INDEX (PRIMARY) WHERE id < {to} ORDER BY id DESC LIMIT {limit}
