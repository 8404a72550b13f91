-- Locks keys of the strict order until the end of the producer's transaction. Only the hashes name the tables.
SELECT pg_advisory_xact_lock($1, hash) FROM unnest($2::int4[]) AS hash
