-- The handlers of a build, all at once: a reader of the list sees all of them or none. The list has a fixed order, so
-- that two publishers cannot wait for each other.
INSERT INTO {outbox}handler (record_type, handler)
SELECT x.record_type, x.handler
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    record_type VARCHAR(128) PATH '$.record_type', handler VARCHAR(128) PATH '$.handler')) AS x
ON DUPLICATE KEY UPDATE seen_at = UTC_TIMESTAMP(6)
