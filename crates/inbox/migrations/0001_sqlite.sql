-- The tables of one inbox. {inbox} stands for the prefix. Times are microseconds since 1970.

CREATE TABLE IF NOT EXISTS {inbox}meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    schema_version  INTEGER NOT NULL,
    created_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT;

CREATE TABLE IF NOT EXISTS {inbox}message (
    consumer_group  TEXT    NOT NULL CHECK (octet_length(consumer_group) BETWEEN 1 AND 100),
    event_id        TEXT    NOT NULL CHECK (octet_length(event_id) BETWEEN 1 AND 255),
    status          TEXT    NOT NULL CHECK (status IN ('PROCESSING', 'SUCCESS', 'FAILED')),
    attempts        INTEGER NOT NULL,
    -- Tells one taking of the message from the next.
    token           TEXT    NOT NULL,
    owner           TEXT    NOT NULL,
    -- Until when a message in PROCESSING is its owner's.
    lease_until     INTEGER,
    cost_ms         INTEGER,
    error           TEXT,
    received_at     INTEGER NOT NULL,
    finished_at     INTEGER,
    PRIMARY KEY (event_id, consumer_group)
) STRICT, WITHOUT ROWID;
-- For the purge, and for what was finished lately. Only what is not finished has a lease.
CREATE INDEX IF NOT EXISTS {index}message_finished ON {inbox}message (status, finished_at, lease_until);

INSERT OR IGNORE INTO {inbox}meta (id, schema_version) VALUES (1, 1);
