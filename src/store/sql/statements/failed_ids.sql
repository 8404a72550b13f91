-- Records that have failed for good. {matching} are conditions, the order and the limit. They name the
-- partitions in all cases: MySQL finds failed records by their partition and their status.
SELECT id FROM {outbox}record {by:{index}record_pending} WHERE status = 2 AND id > $1 AND {matching}
