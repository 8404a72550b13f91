-- The tables of idempotent requests. {web} stands for the schema and prefix, {index} for the prefix alone.

CREATE TABLE IF NOT EXISTS {web}meta (
    id              smallint    PRIMARY KEY CHECK (id = 1),
    schema_version  bigint      NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE IF NOT EXISTS {web}request (
    scope           text        COLLATE "C" NOT NULL,
    request_key     text        COLLATE "C" NOT NULL,
    -- Tells one execution from the next.
    token           text        NOT NULL,
    fingerprint     text        NOT NULL,
    trace_id        text        NOT NULL,
    status          text        NOT NULL CHECK (status IN ('PROCESSING', 'SUCCESS')),
    result          text,
    created_at      timestamptz NOT NULL,
    -- The end of the lease, or of the time for which the answer is kept.
    expires_at      timestamptz NOT NULL,
    PRIMARY KEY (request_key, scope)
);
-- For the purge.
CREATE INDEX IF NOT EXISTS {index}request_expires ON {web}request (expires_at);

INSERT INTO {web}meta (id, schema_version) VALUES (1, 1) ON CONFLICT DO NOTHING;
