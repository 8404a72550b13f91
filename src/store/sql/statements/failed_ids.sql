-- Records that have failed for good. {matching} are conditions, the order and the limit. The conditions always name
-- the partitions, because MySQL finds failed records by partition and status.
SELECT id FROM {outbox}record {by:{index}record_pending} WHERE status = 2 AND id > $1 AND {matching}
