-- Step 1 of a claim: pending records of a range of partitions that no other claim is about to take.
SELECT id FROM {outbox}record
WHERE status = 0 AND partition_no >= {from} AND partition_no < {to}{handlers}
ORDER BY partition_no, id LIMIT {limit} FOR UPDATE SKIP LOCKED
