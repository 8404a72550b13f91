-- The first held records of a partition in their order, and whether each is of the lane.
SELECT id, record_key = $1 AND handler = $2 FROM {outbox}record FORCE INDEX ({index}record_pending)
WHERE partition_no = $3 AND status = 3 AND next_attempt_at IS NULL AND id > $4
ORDER BY partition_no, status, next_attempt_at, id LIMIT {limit}
