-- Rows of those gone for long. Called by ClusterStore::purge_instances.
{delete:instance by PRIMARY} WHERE instance_id IN ({instances})
