-- A lane with many held records is released in steps, and calls in partitions whose owners crash are written
-- down. The new index reads all held records once; writes to the table wait meanwhile.

-- How far the held records of a lane are pending again, while its reason is `releasing`.
ALTER TABLE {outbox}lane ADD COLUMN released_to bigint NOT NULL DEFAULT 0;

-- In the order in which they are released.
DROP INDEX {outbox}record_held;
CREATE INDEX {index}record_held ON {outbox}record (partition_no, record_key, handler, id) WHERE status = 3;

-- Owners that were declared dead without a word since an owner last found the partition calm.
ALTER TABLE {outbox}partition ADD COLUMN crashes integer NOT NULL DEFAULT 0;

-- Calls that have begun in partitions with crashes; a row goes when its call has ended.
CREATE TABLE {outbox}start (
    record_id    bigint   PRIMARY KEY,
    partition_no smallint NOT NULL,
    -- Who has begun it; nobody once that instance was declared dead.
    instance_id  text,
    -- How many of those who began it crashed before it ended.
    crashes      integer  NOT NULL DEFAULT 0
);
CREATE INDEX {index}start_partition ON {outbox}start (partition_no);
CREATE INDEX {index}start_instance ON {outbox}start (instance_id);

-- The dedup key of a record that is not due yet, to be free if that is cancelled.
ALTER TABLE {outbox}record ADD COLUMN dedup_key text;
-- By which those of an event are found that are not due yet.
CREATE INDEX {index}record_delayed_key ON {outbox}record (partition_no, record_key) WHERE status = 4;

-- After this the handler is not called any more; most records have none.
ALTER TABLE {outbox}record ADD COLUMN expires_at timestamptz;

UPDATE {outbox}meta SET schema_version = 3 WHERE id = 1;
