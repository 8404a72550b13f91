-- Delivered records go, if this claim of them is the last. {ids} share their token.
{delete:record by PRIMARY} WHERE id IN ({ids}) AND lock_token = {token} AND lock_owner = {instance}
