-- Deletes delivered records. {ids} share their count of failures.
{delete:record by PRIMARY} WHERE id IN ({ids}) AND attempts = {attempts} AND status IN (0, 4)
