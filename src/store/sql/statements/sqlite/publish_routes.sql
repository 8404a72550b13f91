-- The handlers of a build, all at once: a reader of the list sees all of them or none.
INSERT INTO {outbox}handler (record_type, handler)
SELECT value ->> 'record_type', value ->> 'handler' FROM json_each($1) WHERE true
ON CONFLICT (record_type, handler) DO UPDATE SET seen_at = {now}
