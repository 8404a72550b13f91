-- Due records that no transaction has cancelled or is about to cancel: a cancelling transaction locks them until its
-- commit.
SELECT id FROM {outbox}record {by:PRIMARY} WHERE id IN ({ids}) AND status = 4 {unlocked}
