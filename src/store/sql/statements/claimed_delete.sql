-- Deletes delivered records, if this claim is their last one. {ids} share their token.
{delete:record by PRIMARY} WHERE id IN ({ids}) AND lock_token = {token} AND lock_owner = {instance}
