-- As settle_delete, but the records stay with status completed.
WITH fence AS (
    UPDATE {outbox}fence SET counter = counter + 1
    WHERE instance_id = $1 AND slot = $2 AND counter = $3 AND {server} = $4 RETURNING slot
), done AS (
    UPDATE {outbox}record r SET status = 1, completed_at = clock_timestamp(), next_attempt_at = NULL
    FROM fence WHERE r.id = ANY ($5)
      AND r.attempts = $6 AND r.status IN (0, 4)
    RETURNING 1
)
SELECT (SELECT count(*) FROM fence), (SELECT count(*) FROM done), pg_current_xact_id()::text::int8,
       {server}
