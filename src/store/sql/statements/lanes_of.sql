-- The lanes that these records have stopped.
SELECT {int:partition_no}, record_key, handler, record_id, held FROM {outbox}lane {by:{index}lane_record}
WHERE record_id IN ({ids})
