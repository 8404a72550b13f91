-- Delivered records stay, outside of every index for fetches, if this claim is their last one. {ids} share their token.
UPDATE {outbox}record {by:PRIMARY} SET status = 1, completed_at = {now}, next_attempt_at = NULL, lock_owner = NULL
WHERE id IN ({ids}) AND lock_token = {token} AND lock_owner = {instance}
