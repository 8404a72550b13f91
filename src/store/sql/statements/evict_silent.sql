-- Declares an instance dead if its beat counter has not moved. Called by ClusterStore::evict.
UPDATE {outbox}instance {by:PRIMARY} SET state = 'DEAD'
WHERE instance_id = $1 AND beat = $2 AND state IN ('ACTIVE', 'DRAINING')
