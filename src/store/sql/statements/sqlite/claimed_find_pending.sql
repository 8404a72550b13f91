-- Step 1 of a claim: pending records of a range of partitions. The transaction has begun as the only writer.
SELECT id FROM {outbox}record INDEXED BY {index}record_pending
WHERE status = 0 AND partition_no >= {from} AND partition_no < {to}{handlers}
ORDER BY partition_no, id LIMIT {limit}
