-- The lanes that these records have stopped, and whether so many records are held that they return in steps.
SELECT {int:partition_no}, record_key, handler, record_id, CASE WHEN held > {limit} THEN 1 ELSE 0 END, reason, released_to
FROM {outbox}lane WHERE record_id IN ({ids})
