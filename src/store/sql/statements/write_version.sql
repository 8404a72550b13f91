-- Tables that were made without a word of their version have that of this build.
INSERT INTO {outbox}meta (id, schema_version, partition_count, partition_hash) VALUES (1, $1, $2, $3)
