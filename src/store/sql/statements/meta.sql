-- The version and the settings with which the tables were created.
SELECT schema_version, partition_count, partition_hash FROM {outbox}meta WHERE id = 1
