-- The tables of idempotent requests. {web} stands for the schema and prefix, {index} for the prefix alone.
-- Scopes and keys are VARBINARY: text collations would take `a`, `A` and `a ` for one key.

CREATE TABLE IF NOT EXISTS {web}meta (
    id              SMALLINT       NOT NULL PRIMARY KEY,
    schema_version  BIGINT         NOT NULL,
    created_at      DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {web}request (
    scope           VARBINARY(160) NOT NULL,
    request_key     VARBINARY(128) NOT NULL,
    -- Tells one execution from the next.
    token           CHAR(32)       NOT NULL,
    fingerprint     CHAR(64)       NOT NULL,
    trace_id        VARCHAR(64)    NOT NULL,
    status          VARCHAR(10)    NOT NULL,
    result          LONGTEXT,
    created_at      DATETIME(6)    NOT NULL,
    -- The end of the lease, or of the time for which the answer is kept.
    expires_at      DATETIME(6)    NOT NULL,
    PRIMARY KEY (request_key, scope),
    -- For the purge.
    INDEX {index}request_expires (expires_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT IGNORE INTO {web}meta (id, schema_version) VALUES (1, 1);
