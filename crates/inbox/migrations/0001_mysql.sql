-- The tables of one inbox. {inbox} stands for the schema and prefix, {index} for the prefix alone.
-- Ids and groups are VARBINARY: text collations would take `a`, `A` and `a ` for one id.

CREATE TABLE IF NOT EXISTS {inbox}meta (
    id              SMALLINT       NOT NULL PRIMARY KEY,
    schema_version  BIGINT         NOT NULL,
    created_at      DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {inbox}message (
    consumer_group  VARBINARY(100) NOT NULL,
    event_id        VARBINARY(255) NOT NULL,
    status          VARCHAR(10)    NOT NULL,
    attempts        INT            NOT NULL,
    -- Tells one taking of the message from the next.
    token           CHAR(32)       NOT NULL,
    owner           VARCHAR(100)   NOT NULL,
    -- Until when a message in PROCESSING is its owner's.
    lease_until     DATETIME(6),
    cost_ms         BIGINT,
    error           VARCHAR(1000),
    received_at     DATETIME(6)    NOT NULL,
    finished_at     DATETIME(6),
    PRIMARY KEY (event_id, consumer_group),
    -- For the purge, and for what was finished lately. Only what is not finished has a lease.
    INDEX {index}message_finished (status, finished_at, lease_until)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT IGNORE INTO {inbox}meta (id, schema_version) VALUES (1, 1);
