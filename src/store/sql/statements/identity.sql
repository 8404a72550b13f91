-- A text that identifies these tables.
SELECT {identity} FROM {outbox}meta WHERE id = 1
