-- Fails on a read-only server.
UPDATE {outbox}meta SET id = 1 WHERE id = 1
