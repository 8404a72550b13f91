-- The stopped lanes of the partitions, and whether the record that stops each still exists.
SELECT {int:l.partition_no}, l.record_key, l.handler, l.reason, l.record_id,
       {int:CASE WHEN r.id IS NULL THEN 0 ELSE 1 END}, l.released_to
FROM {outbox}lane l LEFT JOIN {outbox}record r ON r.id = l.record_id
WHERE l.partition_no IN ({partitions})
