-- The last rows below the first id of a scan: those that are in flight, those that were committed
-- after the scan's first id was seen, and as null whatever is not pending here.
SELECT IF(status = 0 AND partition_no IN ({partitions}), id, NULL)
FROM {outbox}record FORCE INDEX (PRIMARY) WHERE id < {to} ORDER BY id DESC LIMIT {limit}
