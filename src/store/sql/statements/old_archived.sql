-- Archived records whose retention is over.
SELECT id FROM {outbox}archive WHERE completed_at < {ago:$1} ORDER BY completed_at LIMIT $2
