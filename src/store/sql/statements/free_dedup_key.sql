-- The dedup key of an event that was cancelled can be used again.
DELETE FROM {outbox}dedup WHERE dedup_key = $1
