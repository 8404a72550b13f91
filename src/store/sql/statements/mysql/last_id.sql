-- The last id.
SELECT COALESCE(MAX(id), 0) FROM {outbox}record
