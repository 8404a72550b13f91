-- Claimed mode: records without order, each claimed for the length of a lease. A claimed record is delayed until its
-- lease ends and has an owner, so the indexes stay as they are. The other mode leaves the new columns null.

-- How the records are delivered: 'partitioned' or 'claimed'.
ALTER TABLE {outbox}meta ADD COLUMN mode VARCHAR(16) NOT NULL DEFAULT 'partitioned';

-- Who has claimed it; next_attempt_at is then the end of the lease.
ALTER TABLE {outbox}record ADD COLUMN lock_owner VARCHAR(36);
-- Grows with each claim: an outcome that names an older one is refused.
ALTER TABLE {outbox}record ADD COLUMN lock_token BIGINT;
-- How many claims in a row have ended because their leases ran out, as they do when a process crashes.
ALTER TABLE {outbox}record ADD COLUMN lock_crashes BIGINT;

UPDATE {outbox}meta SET schema_version = 5 WHERE id = 1;
