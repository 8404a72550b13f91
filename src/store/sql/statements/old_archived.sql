-- Archived records whose retention is over. Deleted by SqlStore::purge_round.
SELECT id FROM {outbox}archive {by:{index}archive_completed} WHERE completed_at < {ago:$1} ORDER BY completed_at LIMIT $2
