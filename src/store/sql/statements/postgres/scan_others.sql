-- As scan_by_id, of ranges of ids that were not seen ($1 and $2), and then of the ids from $8 on, below $9. Each range
-- is read by itself, because a join of ranges may be planned as a walk over all ids. At most $6 records are wanted in
-- all; further records come last.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       coalesce(pg_sequence_last_value('{outbox}record_id_seq'::regclass), 0) AS last_id,
       pg_current_snapshot()::text AS seen, {server} AS server,
       (SELECT array_agg(l.id) FROM (
            SELECT r.id FROM unnest($1::int8[], $2::int8[]) AS o (first, last)
            CROSS JOIN LATERAL (SELECT id FROM {outbox}record
                                WHERE id >= o.first AND id <= o.last ORDER BY id LIMIT $7) r
            LIMIT $7) l)
       || (SELECT array_agg(l.id) FROM (
            SELECT id FROM {outbox}record WHERE id >= $8 AND id < $9 ORDER BY id LIMIT $7) l) AS visible
UNION ALL (
    SELECT r.id, r.event_id, r.partition_no::int8, r.record_key, r.handler, r.record_type, r.content_type,
           r.payload, r.headers, r.attempts::int8, clock_timestamp() - r.created_at, clock_timestamp() - r.expires_at,
           NULL, NULL, NULL, NULL
    FROM unnest($1::int8[], $2::int8[]) AS o (first, last)
    CROSS JOIN LATERAL (
        SELECT * FROM {outbox}record
        WHERE id >= o.first AND id <= o.last AND status = 0 AND get_bit($3, partition_no) = 1
          AND id NOT IN (SELECT unnest($4::int8[])){handlers}
        ORDER BY id LIMIT $6) r
    WHERE NOT EXISTS (SELECT FROM unnest($5::int8[]) AS o (number)
                      WHERE pg_visible_in_snapshot(o.number::text::xid8, pg_current_snapshot()))
    ORDER BY r.id LIMIT $6
)
UNION ALL (
    SELECT id, event_id, partition_no::int8, record_key, handler, record_type, content_type,
           payload, headers, attempts::int8, clock_timestamp() - created_at, clock_timestamp() - expires_at,
           NULL, NULL, NULL, NULL
    FROM {outbox}record
    WHERE id >= $8 AND id < $9 AND status = 0 AND get_bit($3, partition_no) = 1
      AND id NOT IN (SELECT unnest($4::int8[])){handlers}
      AND NOT EXISTS (SELECT FROM unnest($5::int8[]) AS o (number)
                      WHERE pg_visible_in_snapshot(o.number::text::xid8, pg_current_snapshot()))
    ORDER BY id LIMIT $6
)
