-- A handler is there again. Called by AdminStore::publish_routes.
UPDATE {outbox}handler SET seen_at = {now} WHERE record_type = $1 AND handler = $2
