-- The records of the list that this owner still has claimed.
SELECT id FROM {outbox}record {by:PRIMARY} WHERE id IN ({ids}) AND lock_owner = {instance}
