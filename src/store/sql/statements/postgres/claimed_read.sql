-- Step 3 of a claim: the claimed records with their tokens. No statement about claims tests the status, which follows
-- from the owner: PostgreSQL would read all delayed records by their index.
SELECT id, event_id, partition_no::int8, record_key, handler, record_type, content_type, payload, headers,
       attempts::int8, clock_timestamp() - created_at, clock_timestamp() - expires_at, lock_token
FROM {outbox}record WHERE id IN ({ids}) AND lock_owner = {instance}
