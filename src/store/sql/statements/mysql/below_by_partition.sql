-- As below, for any number of rows, from the index alone.
SELECT id FROM {outbox}record FORCE INDEX ({index}record_pending)
WHERE partition_no IN ({partitions}) AND status = 0 AND next_attempt_at IS NULL AND id < {to}
