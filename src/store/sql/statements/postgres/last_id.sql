-- The last id that was drawn, and the server. A statement of its own: it must be read before a number is given out.
-- None if sessions draw ids in advance, which would be used in any order.
SELECT CASE WHEN s.seqcache > 1 THEN 0 WHEN q.is_called THEN q.last_value ELSE q.last_value - 1 END, {server}
FROM {outbox}record_id_seq q, pg_sequence s WHERE s.seqrelid = '{outbox}record_id_seq'::regclass
