-- The fence rows of purged instances. Without a row every late write is refused, too.
{delete:fence by PRIMARY} WHERE instance_id IN ({instances})
