-- Delivered records go. {ids} share their count of failures.
DELETE FROM {outbox}record WHERE id IN ({ids}) AND attempts = {attempts} AND status IN (0, 4)
