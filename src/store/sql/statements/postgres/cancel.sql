-- Cancels records that are not due yet. The clock is read again once they are locked: a fetch that has found a record
-- due before that was not kept from the record, and still finds it. Records that are due already are not locked, so
-- that they stay visible.
WITH found AS MATERIALIZED (
    SELECT id FROM {outbox}record
    WHERE partition_no = $1 AND record_key = $2 AND {named} = $3 AND status = 4 AND attempts = 0 AND last_error IS NULL
      AND lock_owner IS NULL AND next_attempt_at > clock_timestamp()
    FOR UPDATE
), cancelled AS (
    DELETE FROM {outbox}record r USING found
    WHERE r.id = found.id AND r.next_attempt_at > clock_timestamp()
    RETURNING r.dedup_key, r.created_at
), freed AS (
    -- A key that was inserted after the record is that of another event.
    DELETE FROM {outbox}dedup d USING cancelled
    WHERE d.dedup_key = cancelled.dedup_key AND d.created_at <= cancelled.created_at
)
SELECT count(*)::int8 FROM cancelled
