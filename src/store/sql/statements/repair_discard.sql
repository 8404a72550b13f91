-- Failed records are discarded.
{delete:record by PRIMARY} WHERE id IN ({ids}) AND status = 2
