-- A failed record is given up.
{delete:record by PRIMARY} WHERE id = $1 AND status = 2
