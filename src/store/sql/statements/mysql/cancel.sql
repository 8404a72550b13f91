-- Cancels the locked records that are still not due.
{delete:record by PRIMARY} WHERE id IN ({ids}) AND status = 4 AND attempts = 0 AND last_error IS NULL
  AND lock_owner IS NULL AND next_attempt_at > {now}
