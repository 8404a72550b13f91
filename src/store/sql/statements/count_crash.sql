-- An instance was evicted because it was silent: counts a crash for each partition that it owned.
UPDATE {outbox}partition {by:PRIMARY} SET crashes = crashes + 1 WHERE owner = $1
