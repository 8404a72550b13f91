-- Claimed records whose handlers were not called are pending again. {ids} share their token.
UPDATE {outbox}record {by:PRIMARY} SET status = 0, next_attempt_at = NULL, lock_owner = NULL
WHERE id IN ({ids}) AND lock_token = {token} AND lock_owner = {instance}
