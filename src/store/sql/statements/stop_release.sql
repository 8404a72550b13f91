-- A record stops a releasing lane again: no more of its held records return.
UPDATE {outbox}lane {by:{index}lane_record} SET record_id = $1, reason = 'retrying', released_to = 0
WHERE record_id = $2 AND reason = 'releasing'
