-- Pending records below the first id of a sweep, out of the index alone: those that are in flight, and
-- those that were committed after the sweep's first id was seen.
SELECT id FROM {outbox}record FORCE INDEX ({index}record_pending)
WHERE partition_no IN ({partitions}) AND status = 0 AND next_attempt_at IS NULL AND id < {to}
