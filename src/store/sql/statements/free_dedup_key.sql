-- The dedup key of a cancelled event can be used again.
DELETE FROM {outbox}dedup WHERE dedup_key = $1
