-- Locks keys of the strict order until the end of the producer's transaction. The hashes include the names of the
-- tables. {hashes} is one parameter with a list of numbers, or one parameter per number.
SELECT pg_advisory_xact_lock($1::int8::int4, hash) FROM unnest({hashes}) AS hash
