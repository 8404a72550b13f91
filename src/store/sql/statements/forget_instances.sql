-- Rows of those gone for long. Called by ClusterStore::forget.
{delete:instance by PRIMARY} WHERE instance_id IN ({instances})
