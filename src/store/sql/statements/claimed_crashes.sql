-- How many leases of these claims have run out before.
SELECT coalesce(lock_crashes, 0) FROM {outbox}record {by:PRIMARY} WHERE id IN ({ids})
