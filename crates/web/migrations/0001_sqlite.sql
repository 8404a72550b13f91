-- The tables of idempotent requests. {web} stands for the prefix. Times are microseconds since 1970.

CREATE TABLE IF NOT EXISTS {web}meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    schema_version  INTEGER NOT NULL,
    created_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT;

CREATE TABLE IF NOT EXISTS {web}request (
    scope           TEXT    NOT NULL,
    request_key     TEXT    NOT NULL,
    -- Tells one execution from the next.
    token           TEXT    NOT NULL,
    fingerprint     TEXT    NOT NULL,
    trace_id        TEXT    NOT NULL,
    status          TEXT    NOT NULL CHECK (status IN ('PROCESSING', 'SUCCESS')),
    result          TEXT,
    created_at      INTEGER NOT NULL,
    -- The end of the lease, or of the time for which the answer is kept.
    expires_at      INTEGER NOT NULL,
    PRIMARY KEY (request_key, scope)
) STRICT, WITHOUT ROWID;
-- For the purge.
CREATE INDEX IF NOT EXISTS {index}request_expires ON {web}request (expires_at);

INSERT INTO {web}meta (id, schema_version) VALUES (1, 1) ON CONFLICT DO NOTHING;
