-- The first pending record of all given partitions, without those in $2, with the snapshot that sees it and the server.
SELECT (SELECT min(head.id)
        FROM unnest($1::int2[]) AS p (no)
        CROSS JOIN LATERAL (
            SELECT o.id FROM {outbox}record o
            WHERE o.partition_no = p.no AND o.status = 0 AND o.id NOT IN (SELECT unnest($2::int8[]))
            ORDER BY o.id LIMIT 1
        ) AS head),
       pg_current_snapshot()::text, {server}
