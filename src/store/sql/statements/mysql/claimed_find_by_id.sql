-- Step 1 of a claim during a backlog: pending records in the order of ids, which lie on the same pages.
SELECT id FROM {outbox}record FORCE INDEX (PRIMARY) WHERE id >= {from} AND status = 0{handlers}
ORDER BY id LIMIT {limit} FOR UPDATE SKIP LOCKED
