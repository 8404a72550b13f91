-- The tables of one inbox. {inbox} stands for the schema and prefix, {index} for the prefix alone.

CREATE TABLE IF NOT EXISTS {inbox}meta (
    id              smallint    PRIMARY KEY CHECK (id = 1),
    schema_version  bigint      NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE IF NOT EXISTS {inbox}message (
    consumer_group  text        COLLATE "C" NOT NULL CHECK (octet_length(consumer_group) BETWEEN 1 AND 100),
    event_id        text        COLLATE "C" NOT NULL CHECK (octet_length(event_id) BETWEEN 1 AND 255),
    status          text        NOT NULL CHECK (status IN ('PROCESSING', 'SUCCESS', 'FAILED')),
    attempts        integer     NOT NULL,
    -- Tells one taking of the message from the next.
    token           text        NOT NULL,
    owner           text        NOT NULL,
    -- Until when a message in PROCESSING is its owner's.
    lease_until     timestamptz,
    cost_ms         bigint,
    error           text,
    received_at     timestamptz NOT NULL,
    finished_at     timestamptz,
    PRIMARY KEY (event_id, consumer_group)
);
-- For the purge, and for what was finished lately. Only what is not finished has a lease.
CREATE INDEX IF NOT EXISTS {index}message_finished ON {inbox}message (status, finished_at, lease_until);

INSERT INTO {inbox}meta (id, schema_version) VALUES (1, 1) ON CONFLICT DO NOTHING;
