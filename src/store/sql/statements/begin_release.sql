-- These lanes go on in steps.
UPDATE {outbox}lane {by:{index}lane_record} SET reason = 'releasing', released_to = 0
WHERE record_id IN ({ids}) AND reason <> 'releasing'
