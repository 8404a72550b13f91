-- Records that have failed for good, of routes and handlers that keep dead letters here; they stay until somebody
-- schedules them again or deletes them.
CREATE TABLE {outbox}dead_letter (
    id           bigint      PRIMARY KEY,
    created_at   timestamptz NOT NULL,
    failed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    event_id     uuid        NOT NULL,
    partition_no smallint    NOT NULL,
    record_key   text        NOT NULL,
    handler      text        NOT NULL,
    record_type  text        NOT NULL,
    content_type text        NOT NULL,
    payload      bytea       NOT NULL,
    headers      text,
    attempts     integer     NOT NULL,
    target       text        NOT NULL,
    error        text        NOT NULL,
    error_class  text,
    error_kind   text        NOT NULL
);

-- As before, and also for handlers that are listed for a pattern, in which `*` stands for any text.
CREATE OR REPLACE FUNCTION {outbox}schedule(
    record_type text,
    record_key  text,
    payload     jsonb,
    headers     jsonb DEFAULT NULL,
    event_id    uuid  DEFAULT gen_random_uuid()
) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    -- Refuses a key that is empty or too long.
    key_partition CONSTANT smallint := {outbox}partition_of(coalesce(record_key, ''));
    scheduled     integer;
BEGIN
    IF octet_length(convert_to(coalesce(record_type, ''), 'UTF8')) NOT BETWEEN 1 AND 128 THEN
        RAISE EXCEPTION 'a record type has 1 to 128 bytes'
            USING HINT = 'Use the name that its handlers are registered for, such as order.placed.';
    END IF;
    -- Workers read headers as a map of texts: anything else would stop them at every fetch.
    IF jsonb_typeof(headers) <> 'object' OR jsonb_path_exists(headers, 'strict $.* ? (@.type() <> "string")') THEN
        RAISE EXCEPTION 'headers are a JSON object of strings'
            USING HINT = 'Such as jsonb_build_object(''trace_id'', ''4bf92f35''), or NULL for none.';
    END IF;

    INSERT INTO {outbox}record (event_id, partition_no, record_key, handler, record_type, payload, headers)
    SELECT
        {index}schedule.event_id, key_partition, {index}schedule.record_key, listed.handler,
        {index}schedule.record_type, convert_to({index}schedule.payload::text, 'UTF8'), {index}schedule.headers::text
    FROM {outbox}handler AS listed
    WHERE {index}schedule.record_type LIKE replace(replace(listed.record_type, '_', '|_'), '*', '%') ESCAPE '|'
    GROUP BY listed.handler
    ORDER BY listed.handler;

    GET DIAGNOSTICS scheduled = ROW_COUNT;
    IF scheduled = 0 THEN
        RAISE EXCEPTION 'no handler is listed for the record type "%"', record_type
            USING HINT = 'Start a process that handles it once: it lists its handlers in {outbox}handler.';
    END IF;
    RETURN scheduled;
END
$$;

UPDATE {outbox}meta SET schema_version = 4 WHERE id = 1;
