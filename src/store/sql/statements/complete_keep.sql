-- Delivered records stay, outside of every index for fetches.
UPDATE {outbox}record {by:PRIMARY} SET status = 1, completed_at = {now}, next_attempt_at = NULL
WHERE id IN ({ids}) AND attempts = {attempts} AND status IN (0, 4)
