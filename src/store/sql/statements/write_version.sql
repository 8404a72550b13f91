-- Tables without a version get the version of this build.
INSERT INTO {outbox}meta (id, schema_version, partition_count, partition_hash) VALUES (1, $1, $2, $3)
