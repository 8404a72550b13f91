-- Pending records of the partitions in turn, each from its head, without those in flight. The inner limit bounds the
-- records of one partition, the outer one all. It always uses the partial index (partition_no, id), in spite of the
-- statistics. NOT IN over a subquery is hashed; `<> ALL` of a parameter would be searched from its start for each row.
SELECT r.id, r.event_id, r.partition_no::int8, r.record_key, r.handler, r.record_type, r.content_type,
       r.payload, r.headers, r.attempts::int8, clock_timestamp() - r.created_at, clock_timestamp() - r.expires_at
FROM unnest($1::int2[]) AS p (no)
CROSS JOIN LATERAL (
    SELECT * FROM {outbox}record o
    WHERE o.partition_no = p.no AND o.status = 0 AND o.id NOT IN (SELECT unnest($2::int8[])){handlers}
    ORDER BY o.id LIMIT $3
) AS r LIMIT $4
