-- Delayed records whose time has come, by the partial index (partition_no, next_attempt_at), and the count of the
-- cluster's changes in a row that is no record.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, cluster_changes FROM {outbox}meta WHERE id = 1
UNION ALL (SELECT r.id, r.event_id, r.partition_no::int8, r.record_key, r.handler, r.record_type, r.content_type,
       r.payload, r.headers, r.attempts::int8, clock_timestamp() - r.created_at, clock_timestamp() - r.expires_at, NULL
FROM unnest($1::int2[]) AS p (no)
CROSS JOIN LATERAL (
    SELECT * FROM {outbox}record o
    WHERE o.partition_no = p.no AND o.status = 4 AND o.next_attempt_at <= clock_timestamp()
      AND o.id NOT IN (SELECT unnest($2::int8[])){handlers}
    ORDER BY o.next_attempt_at LIMIT $3
) AS r LIMIT $4)
