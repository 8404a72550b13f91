-- Gives partitions back. Called by ClusterStore::release, after they are drained.
UPDATE {outbox}partition SET owner = NULL WHERE owner = $1 AND partition_no IN ({partitions})
