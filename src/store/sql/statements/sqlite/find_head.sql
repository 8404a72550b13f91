-- The first pending record of all given partitions, without {skip}: the lowest of their heads.
SELECT MIN((SELECT o.id FROM {outbox}record o INDEXED BY {index}record_pending
            WHERE o.partition_no = p.partition_no AND o.status = 0 AND o.id NOT IN ({skip})
            ORDER BY o.partition_no, o.id LIMIT 1))
FROM {outbox}partition p WHERE p.partition_no IN ({partitions})
