-- The instance has left. Called by ClusterStore::leave.
UPDATE {outbox}instance {by:PRIMARY} SET state = 'STOPPED' WHERE instance_id = $1 AND state IN ('ACTIVE', 'DRAINING')
