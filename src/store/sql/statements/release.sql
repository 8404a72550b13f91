-- Releases partitions after they are drained. {claims} are generation * 256 + partition_no: a late release does not
-- free a partition that was claimed again meanwhile.
UPDATE {outbox}partition {by:PRIMARY} SET owner = NULL
WHERE owner = $1 AND partition_no IN ({partitions}) AND generation * 256 + partition_no IN ({claims})
