-- One heartbeat and the view, which has this instance's beat as it was before. A row with -2 in place of a
-- partition says that it has beaten: without it, it is evicted.
WITH beaten AS (
    UPDATE {outbox}instance SET beat = beat + 1, last_beat_at = clock_timestamp()
    WHERE instance_id = $1 AND state IN ('ACTIVE', 'DRAINING')
    RETURNING instance_id
)
SELECT instance_id, NULL, 0::int8, -2::int8 FROM beaten
UNION ALL SELECT instance_id, state, beat, -1 FROM {outbox}instance WHERE state IN ('ACTIVE', 'DRAINING')
UNION ALL SELECT owner, NULL, generation, partition_no::int8 FROM {outbox}partition
