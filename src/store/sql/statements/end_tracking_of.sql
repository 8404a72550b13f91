-- The calls of these records have ended.
{delete:start by PRIMARY} WHERE record_id IN ({ids})
