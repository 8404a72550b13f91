-- The leases of claims whose handlers run, or are to run, begin again.
UPDATE {outbox}record {by:PRIMARY} SET next_attempt_at = {later:{lease}}
WHERE id IN ({ids}) AND lock_owner = {instance}
