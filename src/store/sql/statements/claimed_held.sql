-- Those of these records that are still claimed by this owner.
SELECT id FROM {outbox}record {by:PRIMARY} WHERE id IN ({ids}) AND lock_owner = {instance}
