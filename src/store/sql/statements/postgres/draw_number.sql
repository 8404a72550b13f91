-- Draws the number of a transaction, after the last id was read, and returns the server.
SELECT pg_current_xact_id()::text::int8, {server}
