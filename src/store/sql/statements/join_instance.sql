-- A process joins. Called by ClusterStore::join.
INSERT INTO {outbox}instance (instance_id, name, version, state) VALUES ($1, $2, $3, 'ACTIVE')
