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

UPDATE {outbox}meta SET schema_version = 4 WHERE id = 1;
