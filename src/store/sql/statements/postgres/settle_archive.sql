-- As settle_delete, but the records move to the archive.
WITH fence AS (
    UPDATE {outbox}fence SET counter = counter + 1
    WHERE instance_id = $1 AND slot = $2 AND counter = $3 AND {server} = $4 RETURNING slot
), done AS (
    DELETE FROM {outbox}record r USING fence WHERE r.id = ANY ($5)
      AND r.attempts = $6 AND r.status IN (0, 4)
    RETURNING r.*
), archived AS (
    INSERT INTO {outbox}archive
           (id, created_at, event_id, attempts, partition_no, record_key, handler, record_type, content_type, payload, headers)
    SELECT id, created_at, event_id, attempts, partition_no, record_key, handler, record_type, content_type, payload, headers
    FROM done RETURNING 1
)
SELECT (SELECT count(*) FROM fence), (SELECT count(*) FROM archived), pg_current_xact_id()::text::int8,
       {server}
