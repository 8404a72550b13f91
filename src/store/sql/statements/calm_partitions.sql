-- No owner of these partitions has crashed for a long time.
UPDATE {outbox}partition {by:PRIMARY} SET crashes = 0 WHERE owner = $1 AND partition_no IN ({partitions})
