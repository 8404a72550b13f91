-- Failed records are given up.
{delete:record by PRIMARY} WHERE id IN ({ids}) AND status = 2
