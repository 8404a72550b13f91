-- Takes back those of them that are still not due, once they are locked.
{delete:record by PRIMARY} WHERE id IN ({ids}) AND status = 4 AND attempts = 0 AND last_error IS NULL
  AND lock_owner IS NULL AND next_attempt_at > {now}
