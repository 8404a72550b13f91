-- The tables of one outbox. {outbox} stands for the schema and prefix, {index} for the prefix alone.
-- record_key is VARBINARY: text collations would take `a`, `A` and `a ` for one key.

CREATE TABLE IF NOT EXISTS {outbox}meta (
    id              SMALLINT     NOT NULL PRIMARY KEY,
    schema_version  BIGINT       NOT NULL,
    partition_count BIGINT       NOT NULL,
    partition_hash  VARCHAR(32)  NOT NULL,
    -- Moved on when an instance joins, drains, releases, leaves or is evicted: who polls sees it.
    cluster_changes BIGINT       NOT NULL DEFAULT 0,
    created_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- id is the only order. next_attempt_at is null unless status is 4 (delayed), so that one index
-- serves the pending records in id order and the delayed ones by their time.
CREATE TABLE IF NOT EXISTS {outbox}record (
    id              BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    created_at      DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    next_attempt_at DATETIME(6),
    completed_at    DATETIME(6),
    event_id        BINARY(16)     NOT NULL,
    attempts        INT            NOT NULL DEFAULT 0,
    partition_no    SMALLINT       NOT NULL,
    status          TINYINT        NOT NULL DEFAULT 0,
    record_key      VARBINARY(255) NOT NULL,
    handler         VARCHAR(128)   NOT NULL,
    record_type     VARCHAR(128)   NOT NULL,
    content_type    VARCHAR(128)   NOT NULL DEFAULT 'application/json',
    payload         LONGBLOB       NOT NULL,
    headers         LONGTEXT,
    last_error      TEXT,
    CONSTRAINT {index}record_partition CHECK (partition_no BETWEEN 0 AND 255),
    CONSTRAINT {index}record_due CHECK (status <> 0 OR next_attempt_at IS NULL),
    KEY {index}record_pending (partition_no, status, next_attempt_at, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {outbox}archive (
    id           BIGINT         NOT NULL PRIMARY KEY,
    created_at   DATETIME(6)    NOT NULL,
    completed_at DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    event_id     BINARY(16)     NOT NULL,
    attempts     INT            NOT NULL,
    partition_no SMALLINT       NOT NULL,
    record_key   VARBINARY(255) NOT NULL,
    handler      VARCHAR(128)   NOT NULL,
    record_type  VARCHAR(128)   NOT NULL,
    content_type VARCHAR(128)   NOT NULL,
    payload      LONGBLOB       NOT NULL,
    headers      LONGTEXT,
    KEY {index}archive_completed (completed_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- A row exists only while a lane stands still.
CREATE TABLE IF NOT EXISTS {outbox}lane (
    partition_no SMALLINT       NOT NULL,
    record_key   VARBINARY(255) NOT NULL,
    handler      VARCHAR(128)   NOT NULL,
    reason       VARCHAR(32)    NOT NULL,
    record_id    BIGINT         NOT NULL,
    held         BIGINT         NOT NULL DEFAULT 0,
    since        DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (partition_no, record_key, handler),
    KEY {index}lane_record (record_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {outbox}instance (
    instance_id  VARCHAR(36)  NOT NULL PRIMARY KEY,
    name         VARCHAR(255) NOT NULL,
    version      VARCHAR(32)  NOT NULL,
    state        VARCHAR(16)  NOT NULL,
    beat         BIGINT       NOT NULL DEFAULT 0,
    started_at   DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    last_beat_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The fence: whoever writes an outcome moves its counter on in the same transaction.
CREATE TABLE IF NOT EXISTS {outbox}fence (
    instance_id VARCHAR(36) NOT NULL,
    slot        BIGINT      NOT NULL,
    counter     BIGINT      NOT NULL,
    PRIMARY KEY (instance_id, slot)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {outbox}partition (
    partition_no SMALLINT    NOT NULL PRIMARY KEY,
    owner        VARCHAR(36),
    generation   BIGINT      NOT NULL DEFAULT 0,
    claimed_at   DATETIME(6)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
INSERT IGNORE INTO {outbox}partition (partition_no)
WITH RECURSIVE numbers AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 255) SELECT n FROM numbers;

-- Which handler takes which record type; '*' is every type. Filled by handling processes at start.
CREATE TABLE IF NOT EXISTS {outbox}handler (
    record_type VARCHAR(128) NOT NULL,
    handler     VARCHAR(128) NOT NULL,
    seen_at     DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (record_type, handler)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {outbox}dedup (
    dedup_key  VARBINARY(255) NOT NULL PRIMARY KEY,
    created_at DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    KEY {index}dedup_created (created_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The strict order level locks a row here for each key it schedules.
CREATE TABLE IF NOT EXISTS {outbox}key (
    record_key VARBINARY(255) NOT NULL PRIMARY KEY,
    sequence   BIGINT         NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Last, so that an interrupted migration is seen as not done (DDL commits by itself here).
INSERT IGNORE INTO {outbox}meta (id, schema_version, partition_count, partition_hash) VALUES (1, 1, 256, 'xxh3_64');
