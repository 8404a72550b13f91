-- A record stops a lane that was about to go on: nothing more of it returns.
UPDATE {outbox}lane {by:{index}lane_record} SET record_id = $1, reason = 'retrying', released_to = 0
WHERE record_id = $2 AND reason = 'releasing'
