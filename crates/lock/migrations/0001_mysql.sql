-- The tables of one set of locks. {lock} stands for the schema and prefix.
-- Keys are VARBINARY: text collations would take `a`, `A` and `a ` for one key.

CREATE TABLE IF NOT EXISTS {lock}meta (
    id              SMALLINT       NOT NULL PRIMARY KEY,
    schema_version  BIGINT         NOT NULL,
    created_at      DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- A row per key. Its row lock puts those who arrive into an order.
CREATE TABLE IF NOT EXISTS {lock}resource (
    resource    VARBINARY(255) NOT NULL PRIMARY KEY,
    last_token  BIGINT         NOT NULL,
    used_at     DATETIME(6)    NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- A row for the holder and for each waiter. The lowest token of a key holds it.
CREATE TABLE IF NOT EXISTS {lock}ticket (
    resource    VARBINARY(255) NOT NULL,
    token       BIGINT         NOT NULL,
    ticket      CHAR(32)       NOT NULL UNIQUE,
    client      CHAR(32)       NOT NULL,
    owner       VARCHAR(100)   NOT NULL,
    -- How often the owner has entered; each release takes one down.
    entries     INT            NOT NULL,
    queued_at   DATETIME(6)    NOT NULL,
    -- From then on, whoever stands behind may delete the row.
    expires_at  DATETIME(6)    NOT NULL,
    PRIMARY KEY (resource, token)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT IGNORE INTO {lock}meta (id, schema_version) VALUES (1, 1);
