-- Step 3 of a claim: the claimed records with their tokens.
SELECT id, event_id, partition_no, record_key, handler, record_type, content_type, payload, headers,
       attempts, {age:created_at}, {age:expires_at}, lock_token
FROM {outbox}record FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND lock_owner = {instance}
