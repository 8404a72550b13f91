-- A record that has stopped its lane before stops it for another reason now.
UPDATE {outbox}lane {by:{index}lane_record} SET reason = $1 WHERE record_id IN ({ids})
