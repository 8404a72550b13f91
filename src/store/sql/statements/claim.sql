-- Claims partitions by compare-and-set. {claims} are generation * 256 + partition_no, as read before. A partition
-- is claimed only if its owner is not live. An instance that has ended never becomes live again, so reading its
-- state needs no lock.
UPDATE {outbox}partition {by:PRIMARY} SET owner = $1, generation = generation + 1, claimed_at = {now}
WHERE partition_no IN ({partitions}) AND generation * 256 + partition_no IN ({claims})
  AND (owner IS NULL OR owner NOT IN
       (SELECT instance_id FROM {outbox}instance WHERE state IN ('ACTIVE', 'DRAINING')))
  AND EXISTS (SELECT 1 FROM {outbox}instance {by:PRIMARY} WHERE instance_id = $2 AND state = 'ACTIVE')
