-- Tells whoever polls that the cluster has changed. Called with the change, after it.
UPDATE {outbox}meta SET cluster_changes = cluster_changes + 1 WHERE id = 1
