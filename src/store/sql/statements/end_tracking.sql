-- The call of a record has ended.
{delete:start by PRIMARY} WHERE record_id = $1
