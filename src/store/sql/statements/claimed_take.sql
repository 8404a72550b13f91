-- Step 2 of a claim, under the conditions of step 1: the record is delayed until its lease ends. If it still has an
-- owner, that owner's lease has run out. The count comes first, because MySQL assigns in this order.
UPDATE {outbox}record {by:PRIMARY}
SET lock_crashes = CASE WHEN lock_owner IS NULL THEN NULL ELSE coalesce(lock_crashes, 0) + 1 END,
    status = 4, next_attempt_at = {later:{lease}}, lock_owner = {instance}, lock_token = coalesce(lock_token, 0) + 1
WHERE id IN ({ids}) AND (status = 0 OR status = 4 AND next_attempt_at <= {now})
