-- All live instances with their beats, and all partitions with their generations, of one moment. The first column
-- says what a row is.
SELECT 'instance', instance_id, state, beat, 0 FROM {outbox}instance WHERE state IN ('ACTIVE', 'DRAINING')
UNION ALL SELECT 'partition', owner, NULL, generation, {int:partition_no} FROM {outbox}partition
