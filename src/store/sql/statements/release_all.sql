-- Releases the remaining partitions. Called by ClusterStore::leave.
UPDATE {outbox}partition SET owner = NULL WHERE owner = $1
