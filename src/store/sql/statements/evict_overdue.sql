-- Declares an instance dead that beats but does not release its partitions. Called by ClusterStore::evict.
UPDATE {outbox}instance {by:PRIMARY} SET state = 'DEAD' WHERE instance_id = $1 AND state IN ('ACTIVE', 'DRAINING')
