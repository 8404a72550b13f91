-- Pending records in id order, by the primary key. The first row is the horizon of the same moment:
-- the last id that was drawn, as attempts the number below which no transaction is open, and as age the
-- server. $3 is a
-- bit for each partition: an array would be searched for each row.
SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END, NULL::uuid, -1::int8, '', '', '', '',
       ''::bytea, NULL, pg_snapshot_xmin(pg_current_snapshot())::text::int8,
       {server} * interval '1 microsecond'
FROM {outbox}record_id_seq
UNION ALL (
    SELECT id, event_id, partition_no::int8, record_key, handler, record_type, content_type,
           payload, headers, attempts::int8, clock_timestamp() - created_at
    FROM {outbox}record
    WHERE id >= $1 AND id < $2 AND status = 0 AND get_bit($3, partition_no) = 1
      AND id NOT IN (SELECT unnest($4::int8[]))
    ORDER BY id LIMIT $5
)
