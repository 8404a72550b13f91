-- One heartbeat and the view, which has the beat of this instance before the write. The first column says what a row
-- is. If no row says `beaten`, this instance has been evicted.
WITH beaten AS (
    UPDATE {outbox}instance SET beat = beat + 1, last_beat_at = clock_timestamp()
    WHERE instance_id = $1 AND state IN ('ACTIVE', 'DRAINING')
    RETURNING instance_id
)
SELECT 'beaten', instance_id, NULL, 0::int8, 0::int8 FROM beaten
UNION ALL SELECT 'instance', instance_id, state, beat, 0 FROM {outbox}instance WHERE state IN ('ACTIVE', 'DRAINING')
UNION ALL SELECT 'partition', owner, NULL, generation, partition_no::int8 FROM {outbox}partition
