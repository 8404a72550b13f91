-- All claims. Called by ClusterStore::view.
SELECT {int:partition_no}, owner, generation FROM {outbox}partition ORDER BY partition_no
