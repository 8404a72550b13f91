-- The tables of one set of locks. {lock} stands for the prefix. Times are microseconds since 1970.

CREATE TABLE IF NOT EXISTS {lock}meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    schema_version  INTEGER NOT NULL,
    created_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT;

-- A row per key, with the last token that was drawn.
CREATE TABLE IF NOT EXISTS {lock}resource (
    resource    TEXT    PRIMARY KEY NOT NULL CHECK (octet_length(resource) BETWEEN 1 AND 255),
    last_token  INTEGER NOT NULL,
    used_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A row for the holder and for each waiter. The lowest token of a key holds it.
CREATE TABLE IF NOT EXISTS {lock}ticket (
    resource    TEXT    NOT NULL,
    token       INTEGER NOT NULL,
    ticket      TEXT    NOT NULL UNIQUE,
    client      TEXT    NOT NULL,
    owner       TEXT    NOT NULL,
    -- How often the owner has entered; each release takes one down.
    entries     INTEGER NOT NULL,
    queued_at   INTEGER NOT NULL,
    -- From then on, whoever stands behind may delete the row.
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (resource, token)
) STRICT, WITHOUT ROWID;

INSERT OR IGNORE INTO {lock}meta (id, schema_version) VALUES (1, 1);
