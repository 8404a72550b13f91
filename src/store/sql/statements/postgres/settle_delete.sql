-- Fence row and completions in one statement. The deleted records are joined to the fence row that is written here, so
-- nothing is deleted unless the counter matched and moved on, on the server on which the instance has joined.
WITH fence AS (
    UPDATE {outbox}fence SET counter = counter + 1
    WHERE instance_id = $1 AND slot = $2 AND counter = $3 AND {server} = $4 RETURNING slot
), done AS (
    DELETE FROM {outbox}record r USING fence WHERE r.id = ANY ($5)
      AND r.attempts = $6 AND r.status IN (0, 4)
    RETURNING 1
)
SELECT (SELECT count(*) FROM fence), (SELECT count(*) FROM done), pg_current_xact_id()::text::int8,
       {server}
