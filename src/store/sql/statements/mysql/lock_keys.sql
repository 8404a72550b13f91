-- Locks keys of the strict order until the end of the producer's transaction: {rows} are groups of parameters.
INSERT INTO {outbox}key (record_key, sequence) VALUES {rows} ON DUPLICATE KEY UPDATE sequence = sequence + 1
