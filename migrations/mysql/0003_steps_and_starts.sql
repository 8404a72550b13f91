-- A lane with many held records is released in steps, and calls in partitions whose owners crash are written down.

-- Calls that have begun in partitions with crashes; a row goes when its call has ended.
CREATE TABLE IF NOT EXISTS {outbox}start (
    record_id    BIGINT      NOT NULL PRIMARY KEY,
    partition_no SMALLINT    NOT NULL,
    -- Who has begun it; nobody once that instance was declared dead.
    instance_id  VARCHAR(36),
    -- How many of those who began it crashed before it ended.
    crashes      INT         NOT NULL DEFAULT 0,
    KEY {index}start_partition (partition_no),
    KEY {index}start_instance (instance_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- How far the held records of a lane are pending again, while its reason is `releasing`.
ALTER TABLE {outbox}lane ADD COLUMN released_to BIGINT NOT NULL DEFAULT 0;
-- Owners that were declared dead without a word since an owner last found the partition calm.
ALTER TABLE {outbox}partition ADD COLUMN crashes INT NOT NULL DEFAULT 0;

-- The dedup key of a record that is not due yet, to be free if that is cancelled.
ALTER TABLE {outbox}record ADD COLUMN dedup_key VARBINARY(255);

-- After this the handler is not called any more; most records have none.
ALTER TABLE {outbox}record ADD COLUMN expires_at DATETIME(6);

UPDATE {outbox}meta SET schema_version = 3 WHERE id = 1;
