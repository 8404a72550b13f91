-- Restarts the leases of claims whose handlers run or wait to run.
UPDATE {outbox}record {by:PRIMARY} SET next_attempt_at = {later:{lease}}
WHERE id IN ({ids}) AND lock_owner = {instance}
