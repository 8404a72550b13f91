-- Counts the records held behind each stopping record. The statement writes the row of the lane, so a release of the
-- lane waits for it, or the statement finds the lane released.
UPDATE {outbox}lane {by:{index}lane_record} SET held = held + CASE record_id {counts} ELSE 0 END
WHERE record_id IN ({ids})
