-- Their fence rows: without a row every late write is refused all the same.
{delete:fence by PRIMARY} WHERE instance_id IN ({instances})
