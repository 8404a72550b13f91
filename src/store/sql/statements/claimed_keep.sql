-- Delivered records stay, out of every hot index, if this claim of them is the last. {ids} share their token.
UPDATE {outbox}record {by:PRIMARY} SET status = 1, completed_at = {now}, next_attempt_at = NULL, lock_owner = NULL
WHERE id IN ({ids}) AND lock_token = {token} AND lock_owner = {instance}
