-- The lanes that these records have stopped.
SELECT {int:partition_no}, record_key, handler, record_id, held FROM {outbox}lane WHERE record_id IN ({ids})
