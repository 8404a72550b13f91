DELETE FROM {outbox}record WHERE id IN ({ids}) AND status = 1
