-- Due records that nobody has cancelled or is about to: who cancels keeps a lock on them until the commit.
SELECT id FROM {outbox}record {by:PRIMARY} WHERE id IN ({ids}) AND status = 4 {unlocked}
