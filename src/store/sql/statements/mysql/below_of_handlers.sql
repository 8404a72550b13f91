-- As below, of some handlers, however many rows the others have: in the order of the rows, for an index would be left
-- for each of them.
SELECT id FROM {outbox}record FORCE INDEX (PRIMARY)
WHERE id < {to} AND status = 0 AND partition_no IN ({partitions}){handlers}
