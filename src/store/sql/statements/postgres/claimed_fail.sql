-- Failed attempts of claims, counted or not: tried again later (status 4) or failed for good (status 2).
UPDATE {outbox}record r
SET attempts = r.attempts + x.counted, status = x.status, last_error = x.error, lock_owner = NULL, lock_crashes = NULL,
    next_attempt_at = CASE x.status WHEN 4
        THEN least(clock_timestamp() + x.delay * interval '1 microsecond', r.expires_at) END
FROM json_to_recordset($1::text::json) AS x (id int8, token int8, counted int4, status int2, delay int8, error text)
WHERE r.id = x.id AND r.lock_token = x.token AND r.lock_owner = $2
