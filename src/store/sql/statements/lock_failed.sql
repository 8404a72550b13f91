-- Locks the records of the list that have failed, so that no other transaction repairs them or resumes their lanes.
SELECT id FROM {outbox}record {by:PRIMARY} WHERE id IN ({ids}) AND status = 2 {lock}
