-- Dead letters that are scheduled again, or given up.
{delete:dead_letter by PRIMARY} WHERE id IN ({ids})
