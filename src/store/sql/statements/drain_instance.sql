-- Takes nothing more. Called by ClusterStore::drain.
UPDATE {outbox}instance {by:PRIMARY} SET state = 'DRAINING' WHERE instance_id = $1 AND state = 'ACTIVE'
