-- Nothing has crashed for long in these partitions.
UPDATE {outbox}partition {by:PRIMARY} SET crashes = 0 WHERE owner = $1 AND partition_no IN ({partitions})
