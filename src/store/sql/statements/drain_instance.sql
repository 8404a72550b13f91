-- The instance takes no new partitions or records. Called by ClusterStore::drain.
UPDATE {outbox}instance {by:PRIMARY} SET state = 'DRAINING' WHERE instance_id = $1 AND state = 'ACTIVE'
