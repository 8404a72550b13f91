-- The ids of pending records from the first id of a scan on, beyond the reach of the scan.
SELECT id
FROM {outbox}record FORCE INDEX (PRIMARY)
WHERE id >= {from} AND id < {to} AND status = 0 AND partition_no IN ({partitions}) AND id NOT IN ({skip}){handlers}
ORDER BY id LIMIT {limit}
