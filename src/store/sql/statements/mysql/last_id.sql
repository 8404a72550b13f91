-- The last id there is.
SELECT COALESCE(MAX(id), 0) FROM {outbox}record
