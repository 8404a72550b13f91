-- As scan_by_id, if few records are to be skipped, nothing is to be listed and no end of a transaction matters: a plan
-- with fewer nodes begins sooner. $5 is searched for each row.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       coalesce(pg_sequence_last_value('{outbox}record_id_seq'::regclass), 0) AS last_id,
       pg_current_snapshot()::text AS seen, {server} AS server, NULL::int8[] AS visible
UNION ALL (
    SELECT id, event_id, partition_no::int8, record_key, handler, record_type, content_type,
           payload, headers, attempts::int8, clock_timestamp() - created_at, clock_timestamp() - expires_at,
           NULL, NULL, NULL, NULL
    FROM {outbox}record
    WHERE id >= $1 AND id < $2 AND status = 0 AND get_bit($3, partition_no) = 1
      AND id <> ALL ($5::int8[]){handlers}
    ORDER BY id LIMIT $4
)
