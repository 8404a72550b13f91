-- The dedup key of a cancelled event can be used again. A key that was inserted after the event is that of another
-- event.
DELETE FROM {outbox}dedup WHERE dedup_key = $1 AND created_at <= $2
