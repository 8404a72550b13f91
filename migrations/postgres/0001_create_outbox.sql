-- The tables of one outbox. {outbox} stands for the schema and prefix, {index} for the prefix alone.

CREATE TABLE {outbox}meta (
    id              smallint    PRIMARY KEY CHECK (id = 1),
    schema_version  bigint      NOT NULL,
    partition_count bigint      NOT NULL,
    partition_hash  text        NOT NULL,
    -- Moved on when an instance joins, drains, releases, leaves or is evicted: who polls sees it.
    cluster_changes bigint      NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO {outbox}meta (id, schema_version, partition_count, partition_hash) VALUES (1, 1, 256, 'xxh3_64');

-- id is the only order: drawn one by one (CACHE 1), so that it follows the order of inserts.
CREATE SEQUENCE {outbox}record_id_seq AS bigint CACHE 1;
CREATE TABLE {outbox}record (
    -- Its transaction gets its number before the id is drawn, in all cases: from that a reader can
    -- tell when no transaction that may still commit an id is open.
    id              bigint      PRIMARY KEY DEFAULT
                                CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('{outbox}record_id_seq') END,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_attempt_at timestamptz,
    completed_at    timestamptz,
    event_id        uuid        NOT NULL,
    attempts        integer     NOT NULL DEFAULT 0,
    partition_no    smallint    NOT NULL CHECK (partition_no BETWEEN 0 AND 255),
    status          smallint    NOT NULL DEFAULT 0 CHECK (status BETWEEN 0 AND 4),
    record_key      text        NOT NULL CHECK (octet_length(record_key) BETWEEN 1 AND 255),
    handler         text        NOT NULL,
    record_type     text        NOT NULL,
    content_type    text        NOT NULL DEFAULT 'application/json',
    payload         bytea       NOT NULL,
    headers         text,
    last_error      text
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER SEQUENCE {outbox}record_id_seq OWNED BY {outbox}record.id;
-- The only index that an insert pays for besides the primary key.
CREATE INDEX {index}record_pending ON {outbox}record (partition_no, id) WHERE status = 0;
CREATE INDEX {index}record_delayed ON {outbox}record (partition_no, next_attempt_at) WHERE status = 4;
CREATE INDEX {index}record_held ON {outbox}record (partition_no, record_key, handler) WHERE status = 3;
CREATE INDEX {index}record_failed ON {outbox}record (id) WHERE status = 2;
CREATE INDEX {index}record_completed ON {outbox}record (completed_at) WHERE status = 1;

CREATE TABLE {outbox}archive (
    id           bigint      PRIMARY KEY,
    created_at   timestamptz NOT NULL,
    completed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    event_id     uuid        NOT NULL,
    attempts     integer     NOT NULL,
    partition_no smallint    NOT NULL,
    record_key   text        NOT NULL,
    handler      text        NOT NULL,
    record_type  text        NOT NULL,
    content_type text        NOT NULL,
    payload      bytea       NOT NULL,
    headers      text
);
CREATE INDEX {index}archive_completed ON {outbox}archive (completed_at);

-- A row exists only while a lane stands still.
CREATE TABLE {outbox}lane (
    partition_no smallint    NOT NULL,
    record_key   text        NOT NULL,
    handler      text        NOT NULL,
    reason       text        NOT NULL,
    record_id    bigint      NOT NULL,
    held         bigint      NOT NULL DEFAULT 0,
    since        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (partition_no, record_key, handler)
);
CREATE INDEX {index}lane_record ON {outbox}lane (record_id);

CREATE TABLE {outbox}instance (
    instance_id  text        PRIMARY KEY,
    name         text        NOT NULL,
    version      text        NOT NULL,
    state        text        NOT NULL,
    beat         bigint      NOT NULL DEFAULT 0,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_beat_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The fence: whoever writes an outcome moves its counter on in the same transaction.
CREATE TABLE {outbox}fence (
    instance_id text   NOT NULL,
    slot        bigint NOT NULL,
    counter     bigint NOT NULL,
    PRIMARY KEY (instance_id, slot)
) WITH (fillfactor = 50);

CREATE TABLE {outbox}partition (
    partition_no smallint    PRIMARY KEY,
    owner        text,
    generation   bigint      NOT NULL DEFAULT 0,
    claimed_at   timestamptz
) WITH (fillfactor = 50);
INSERT INTO {outbox}partition (partition_no) SELECT generate_series(0, 255);

-- Which handler takes which record type; '*' is every type. Filled by handling processes at start.
CREATE TABLE {outbox}handler (
    record_type text        NOT NULL,
    handler     text        NOT NULL,
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (record_type, handler)
);

CREATE TABLE {outbox}dedup (
    dedup_key  text        PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX {index}dedup_created ON {outbox}dedup (created_at);
