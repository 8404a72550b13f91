-- Which tables these are.
SELECT {identity} FROM {outbox}meta WHERE id = 1
