-- These held records are pending again; their ids keep their order.
UPDATE {outbox}record {by:PRIMARY} SET status = 0 WHERE id IN ({ids}) AND status = 3
