-- The tables change to claimed mode, unless an instance of the other mode lives, or a key of the other mode is stopped.
UPDATE {outbox}meta SET mode = 'claimed'
WHERE id = 1 AND NOT EXISTS (SELECT 1 FROM {outbox}instance WHERE state IN ('ACTIVE', 'DRAINING'))
  AND NOT EXISTS (SELECT 1 FROM {outbox}lane)
