-- Deletes dead letters that are scheduled again or discarded.
{delete:dead_letter by PRIMARY} WHERE id IN ({ids})
