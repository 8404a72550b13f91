-- Deletes rows whose retention is over, found by the inner statement.
DELETE FROM {outbox}{table} WHERE {key} IN ({find})
