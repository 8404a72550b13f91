-- The last id that was drawn.
SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = '{index}record'
