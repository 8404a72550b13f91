-- Who takes a record type. Called by schedule when its own list does not know.
SELECT handler FROM {outbox}handler WHERE record_type IN ($1, '*') ORDER BY handler
