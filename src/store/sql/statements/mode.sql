-- How the records of these tables are delivered.
SELECT mode FROM {outbox}meta WHERE id = 1
