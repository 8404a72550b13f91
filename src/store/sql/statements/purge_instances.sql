-- Rows of instances that ended long ago. Called by ClusterStore::purge_instances.
{delete:instance by PRIMARY} WHERE instance_id IN ({instances})
