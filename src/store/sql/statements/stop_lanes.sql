-- The lanes of these records stop, each with the first of its records.
INSERT INTO {outbox}lane (partition_no, record_key, handler, reason, record_id)
SELECT r.partition_no, r.record_key, r.handler, $1, min(r.id) FROM {outbox}record r {by:PRIMARY}
WHERE r.id IN ({ids}) AND NOT EXISTS
      (SELECT 1 FROM {outbox}lane l {by:PRIMARY}
       WHERE l.partition_no = r.partition_no AND l.record_key = r.record_key AND l.handler = r.handler)
GROUP BY r.partition_no, r.record_key, r.handler
