-- The last id that was drawn. A statement of its own: it must be read before the probe gets its number.
SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM {outbox}record_id_seq
