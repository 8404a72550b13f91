-- The partitions of an instance. Called by ClusterStore::claim.
SELECT {int:partition_no}, generation FROM {outbox}partition WHERE owner = $1 ORDER BY partition_no
