DELETE FROM {outbox}archive WHERE id IN ({ids})
