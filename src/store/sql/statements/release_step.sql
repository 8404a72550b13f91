-- The held records of a lane are pending again up to this id.
UPDATE {outbox}lane {by:{index}lane_record} SET released_to = $1, held = CASE WHEN held < {returned} THEN 0 ELSE held - {returned} END
WHERE record_id = $2 AND reason = 'releasing'
