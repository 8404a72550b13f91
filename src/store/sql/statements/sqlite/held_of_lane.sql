-- The first held records of a lane, in their order.
SELECT id, 1 FROM {outbox}record
WHERE record_key = $1 AND handler = $2 AND partition_no = $3 AND status = 3 AND id > $4
ORDER BY id LIMIT {limit}
