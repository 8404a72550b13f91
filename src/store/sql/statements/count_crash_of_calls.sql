-- Counts the crash for the tracked calls of the instance that had not ended.
UPDATE {outbox}start {by:{index}start_instance} SET crashes = crashes + 1, instance_id = NULL WHERE instance_id = $1
