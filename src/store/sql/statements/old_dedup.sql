-- Dedup keys whose retention is over. Deleted by SqlStore::purge_round.
SELECT dedup_key FROM {outbox}dedup {by:{index}dedup_created} WHERE created_at < {ago:$1} ORDER BY created_at LIMIT $2
