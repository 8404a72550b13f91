-- The tables of one outbox. {outbox} and {index} stand for the prefix.
-- Times are integer microseconds since 1970, so that they sort.

CREATE TABLE {outbox}meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    schema_version  INTEGER NOT NULL,
    partition_count INTEGER NOT NULL,
    partition_hash  TEXT    NOT NULL,
    -- Moved on when an instance joins, drains, releases, leaves or is evicted: who polls sees it.
    cluster_changes INTEGER NOT NULL DEFAULT 0,
    created_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT;
INSERT INTO {outbox}meta (id, schema_version, partition_count, partition_hash) VALUES (1, 1, 256, 'xxh3_64');

-- id is the only order; AUTOINCREMENT never gives a deleted id again.
CREATE TABLE {outbox}record (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    next_attempt_at INTEGER,
    completed_at    INTEGER,
    event_id        BLOB    NOT NULL,
    attempts        INTEGER NOT NULL DEFAULT 0,
    partition_no    INTEGER NOT NULL CHECK (partition_no BETWEEN 0 AND 255),
    status          INTEGER NOT NULL DEFAULT 0 CHECK (status BETWEEN 0 AND 4),
    record_key      TEXT    NOT NULL,
    handler         TEXT    NOT NULL,
    record_type     TEXT    NOT NULL,
    content_type    TEXT    NOT NULL DEFAULT 'application/json',
    payload         BLOB    NOT NULL,
    headers         TEXT,
    last_error      TEXT
) STRICT;
CREATE INDEX {index}record_pending ON {outbox}record (partition_no, id) WHERE status = 0;
CREATE INDEX {index}record_delayed ON {outbox}record (partition_no, next_attempt_at) WHERE status = 4;
CREATE INDEX {index}record_held ON {outbox}record (partition_no, record_key, handler) WHERE status = 3;
CREATE INDEX {index}record_failed ON {outbox}record (id) WHERE status = 2;
CREATE INDEX {index}record_completed ON {outbox}record (completed_at) WHERE status = 1;

CREATE TABLE {outbox}archive (
    id           INTEGER PRIMARY KEY,
    created_at   INTEGER NOT NULL,
    completed_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    event_id     BLOB    NOT NULL,
    attempts     INTEGER NOT NULL,
    partition_no INTEGER NOT NULL,
    record_key   TEXT    NOT NULL,
    handler      TEXT    NOT NULL,
    record_type  TEXT    NOT NULL,
    content_type TEXT    NOT NULL,
    payload      BLOB    NOT NULL,
    headers      TEXT
) STRICT;
CREATE INDEX {index}archive_completed ON {outbox}archive (completed_at);

-- A row exists only while a lane stands still.
CREATE TABLE {outbox}lane (
    partition_no INTEGER NOT NULL,
    record_key   TEXT    NOT NULL,
    handler      TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    record_id    INTEGER NOT NULL,
    held         INTEGER NOT NULL DEFAULT 0,
    since        INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (partition_no, record_key, handler)
) STRICT, WITHOUT ROWID;
CREATE INDEX {index}lane_record ON {outbox}lane (record_id);

CREATE TABLE {outbox}instance (
    instance_id  TEXT    PRIMARY KEY,
    name         TEXT    NOT NULL,
    version      TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    beat         INTEGER NOT NULL DEFAULT 0,
    started_at   INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    last_beat_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT, WITHOUT ROWID;

-- The fence: whoever writes an outcome moves its counter on in the same transaction.
CREATE TABLE {outbox}fence (
    instance_id TEXT    NOT NULL,
    slot        INTEGER NOT NULL,
    counter     INTEGER NOT NULL,
    PRIMARY KEY (instance_id, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE {outbox}partition (
    partition_no INTEGER PRIMARY KEY,
    owner        TEXT,
    generation   INTEGER NOT NULL DEFAULT 0,
    claimed_at   INTEGER
) STRICT;
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 255)
INSERT INTO {outbox}partition (partition_no) SELECT n FROM numbers;

-- Which handler takes which record type; '*' is every type. Filled by handling processes at start.
CREATE TABLE {outbox}handler (
    record_type TEXT    NOT NULL,
    handler     TEXT    NOT NULL,
    seen_at     INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (record_type, handler)
) STRICT, WITHOUT ROWID;

CREATE TABLE {outbox}dedup (
    dedup_key  TEXT    PRIMARY KEY,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT, WITHOUT ROWID;
CREATE INDEX {index}dedup_created ON {outbox}dedup (created_at);
