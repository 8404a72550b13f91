-- Tells instances at their next poll that the cluster has changed. Run after the change.
UPDATE {outbox}meta SET cluster_changes = cluster_changes + 1 WHERE id = 1
