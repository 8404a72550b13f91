-- Records that have failed for good, of routes and handlers that keep dead letters here; they stay until somebody
-- schedules them again or deletes them.
CREATE TABLE {outbox}dead_letter (
    id           INTEGER PRIMARY KEY,
    created_at   INTEGER NOT NULL,
    failed_at    INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    event_id     BLOB    NOT NULL,
    partition_no INTEGER NOT NULL,
    record_key   TEXT    NOT NULL,
    handler      TEXT    NOT NULL,
    record_type  TEXT    NOT NULL,
    content_type TEXT    NOT NULL,
    payload      BLOB    NOT NULL,
    headers      TEXT,
    attempts     INTEGER NOT NULL,
    target       TEXT    NOT NULL,
    error        TEXT    NOT NULL,
    error_class  TEXT,
    error_kind   TEXT    NOT NULL
) STRICT;

UPDATE {outbox}meta SET schema_version = 4 WHERE id = 1;
