-- Pending records in id order, by the primary key, and the horizon of the same moment in a row that is no record: the
-- last id that was drawn, the snapshot, and the server. $3 is a bit per partition, because an array would be searched
-- for each row. If one of the transactions in $5 has ended, the scan has begun too late, and no record is read. At most
-- $7 of the ids that the snapshot sees are listed.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       coalesce(pg_sequence_last_value('{outbox}record_id_seq'::regclass), 0) AS last_id,
       pg_current_snapshot()::text AS seen, {server} AS server,
       (SELECT array_agg(l.id) FROM (
            SELECT id FROM {outbox}record WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $7) l) AS visible
UNION ALL (
    SELECT id, event_id, partition_no::int8, record_key, handler, record_type, content_type,
           payload, headers, attempts::int8, clock_timestamp() - created_at, clock_timestamp() - expires_at,
           NULL, NULL, NULL, NULL
    FROM {outbox}record
    WHERE id >= $1 AND id < $2 AND status = 0 AND get_bit($3, partition_no) = 1
      AND id NOT IN (SELECT unnest($4::int8[])){handlers}
      AND NOT EXISTS (SELECT FROM unnest($5::int8[]) AS o (number)
                      WHERE pg_visible_in_snapshot(o.number::text::xid8, pg_current_snapshot()))
    ORDER BY id LIMIT $6
)
