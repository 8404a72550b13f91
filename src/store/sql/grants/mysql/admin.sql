-- A person who reads lists, retries, discards, replaces payloads, drains instances, purges and retires handlers.
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}record TO {to};
GRANT SELECT, UPDATE, DELETE ON {outbox}lane TO {to};
GRANT SELECT, DELETE ON {outbox}archive TO {to};
GRANT SELECT, UPDATE, DELETE ON {outbox}dead_letter TO {to};
GRANT SELECT, DELETE ON {outbox}dedup TO {to};
GRANT SELECT, DELETE ON {outbox}handler TO {to};
GRANT SELECT, DELETE ON {outbox}start TO {to};
GRANT SELECT, DELETE ON {outbox}key TO {to};
GRANT SELECT, UPDATE ON {outbox}meta TO {to};
GRANT SELECT, UPDATE ON {outbox}instance TO {to};
GRANT SELECT ON {outbox}fence TO {to};
GRANT SELECT ON {outbox}partition TO {to};
