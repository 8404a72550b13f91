-- The transactions of the list that hold no lock on the table of records, and so have written none. An insert takes
-- the lock before the id is drawn, and keeps it until the end of the transaction, or of the savepoint that removes the
-- row. The last id is read before. A transaction holds a lock on its own number; a session that waits for its end asks
-- for a share of that lock.
WITH held AS MATERIALIZED (
    SELECT locktype, transactionid, virtualtransaction, relation FROM pg_locks
    WHERE granted AND (locktype = 'transactionid' AND mode = 'ExclusiveLock'
                       OR locktype = 'relation' AND mode <> 'AccessShareLock'
                          AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
)
SELECT o.number FROM unnest($1::int8[]) AS o (number)
JOIN held own ON own.locktype = 'transactionid' AND own.transactionid = (o.number & 4294967295)::text::xid
WHERE NOT EXISTS (SELECT FROM held AS written
                  WHERE written.virtualtransaction = own.virtualtransaction
                    AND written.relation = '{outbox}record'::regclass)
