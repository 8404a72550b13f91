-- A failed record is given up.
DELETE FROM {outbox}record WHERE id = $1 AND status = 2
