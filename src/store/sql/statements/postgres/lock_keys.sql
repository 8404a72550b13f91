-- Locks keys of the strict order until the end of the producer's transaction. Only the hashes name the tables.
-- {hashes} is a list of numbers as one parameter, or as one each.
SELECT pg_advisory_xact_lock($1::int8::int4, hash) FROM unnest({hashes}) AS hash
