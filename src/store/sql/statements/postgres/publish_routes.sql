-- The handlers of a build, all at once: a reader of the list sees all of them or none. The list has a fixed order, so
-- that two publishers cannot wait for each other.
INSERT INTO {outbox}handler (record_type, handler)
SELECT x.record_type, x.handler FROM json_to_recordset($1::text::json) AS x (record_type text, handler text)
ORDER BY x.record_type, x.handler
ON CONFLICT (record_type, handler) DO UPDATE SET seen_at = clock_timestamp()
