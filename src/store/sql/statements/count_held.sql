-- Counts the records held behind each stopping record; writing the row makes a release of the lane
-- wait, or finds the lane released.
UPDATE {outbox}lane {by:{index}lane_record} SET held = held + CASE record_id {counts} ELSE 0 END
WHERE record_id IN ({ids})
