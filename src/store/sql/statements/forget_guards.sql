-- Guard rows of forgotten instances: without a row every late write is refused all the same.
DELETE FROM {outbox}fence WHERE instance_id NOT IN (SELECT instance_id FROM {outbox}instance)
