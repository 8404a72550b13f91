-- All live instances, with -1 in place of a partition, and all claims, as of one moment.
SELECT instance_id, state, beat, -1 FROM {outbox}instance WHERE state IN ('ACTIVE', 'DRAINING')
UNION ALL SELECT owner, NULL, generation, {int:partition_no} FROM {outbox}partition
