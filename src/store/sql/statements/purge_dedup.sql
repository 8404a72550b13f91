-- Dedup keys whose retention is over.
DELETE FROM {outbox}dedup WHERE created_at < {ago:$1}
