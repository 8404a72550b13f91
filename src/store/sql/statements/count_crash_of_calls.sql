-- The calls that it had begun did not end.
UPDATE {outbox}start {by:{index}start_instance} SET crashes = crashes + 1, instance_id = NULL WHERE instance_id = $1
