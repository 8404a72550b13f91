-- Failed attempts, counted or not: tried again later (status 4) or failed for good (status 2). The list comes first and
-- finds each record by its id, because a scan would wait for rows of open transactions.
UPDATE JSON_TABLE($1, '$[*]' COLUMNS (
    id BIGINT PATH '$.id', attempts INT PATH '$.attempts', counted INT PATH '$.counted', status INT PATH '$.status',
    delay BIGINT PATH '$.delay', error TEXT PATH '$.error')) AS x
STRAIGHT_JOIN {outbox}record r FORCE INDEX (PRIMARY) ON r.id = x.id
SET r.attempts = r.attempts + x.counted, r.status = x.status, r.last_error = x.error,
    r.next_attempt_at = LEAST(UTC_TIMESTAMP(6) + INTERVAL x.delay MICROSECOND,
        COALESCE(r.expires_at, UTC_TIMESTAMP(6) + INTERVAL x.delay MICROSECOND))
WHERE r.attempts = x.attempts AND r.status IN (0, 4)
