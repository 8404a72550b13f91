-- Rows whose retention is over, by a statement that finds their keys.
DELETE FROM {outbox}{table} WHERE {key} IN ({find})
