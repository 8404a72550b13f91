-- A record that has already stopped its lane stops it for another reason now.
UPDATE {outbox}lane {by:{index}lane_record} SET reason = $1 WHERE record_id IN ({ids})
