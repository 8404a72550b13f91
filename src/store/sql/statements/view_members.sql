-- All live instances. Called by ClusterStore::view.
SELECT instance_id, state, beat FROM {outbox}instance WHERE state IN ('ACTIVE', 'DRAINING')
