-- Keys of the strict order that no transaction has locked. If the row of a key is missing later, it is inserted again.
SELECT record_key FROM {outbox}key FORCE INDEX (PRIMARY) WHERE record_key > $1
ORDER BY record_key LIMIT $2 FOR UPDATE SKIP LOCKED
