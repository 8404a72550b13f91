-- The last id that was drawn, and the server. A statement of its own, because it must be read before a number is drawn.
-- Null if sessions draw ids in advance, because such ids are used in any order. The function locks the page: the column
-- last_value is up to 32 ids ahead for a moment, while another session logs that it has drawn ids.
SELECT CASE WHEN s.seqcache > 1 THEN 0 ELSE coalesce(pg_sequence_last_value(s.seqrelid), 0) END, {server}
FROM pg_sequence s WHERE s.seqrelid = '{outbox}record_id_seq'::regclass
