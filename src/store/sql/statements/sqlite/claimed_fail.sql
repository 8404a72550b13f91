-- Failed attempts of claims, counted or not: tried again later (status 4) or failed for good (status 2).
UPDATE {outbox}record
SET attempts = {outbox}record.attempts + x.counted, status = x.status, last_error = x.error, lock_owner = NULL, lock_crashes = NULL,
    next_attempt_at = min({now} + x.delay, coalesce({outbox}record.expires_at, {now} + x.delay))
FROM (SELECT value ->> 'id' AS id, value ->> 'token' AS token, value ->> 'counted' AS counted, value ->> 'status' AS status,
             value ->> 'delay' AS delay, value ->> 'error' AS error FROM json_each($1)) AS x
WHERE {outbox}record.id = x.id AND {outbox}record.lock_token = x.token
  AND {outbox}record.lock_owner = $2
