-- Failed attempts: tried again later (status 4) or failed for good (status 2).
UPDATE {outbox}record
SET attempts = {outbox}record.attempts + 1, status = x.status, last_error = x.error,
    next_attempt_at = {now} + x.delay
FROM (SELECT value ->> 'id' AS id, value ->> 'attempts' AS attempts, value ->> 'status' AS status,
             value ->> 'delay' AS delay, value ->> 'error' AS error FROM json_each($1)) AS x
WHERE {outbox}record.id = x.id AND {outbox}record.attempts = x.attempts AND {outbox}record.status IN (0, 4)
