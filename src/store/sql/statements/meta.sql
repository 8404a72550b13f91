-- What the stored data was made with.
SELECT schema_version, partition_count, partition_hash FROM {outbox}meta WHERE id = 1
