-- As below, of some handlers, if the other handlers may have many rows. It reads the rows in their order, because an
-- index would need a lookup of the row for each entry.
SELECT id FROM {outbox}record FORCE INDEX (PRIMARY)
WHERE id < {to} AND status = 0 AND partition_no IN ({partitions}){handlers}
