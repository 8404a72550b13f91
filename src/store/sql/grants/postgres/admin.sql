-- A person who reads lists, retries, discards, replaces payloads, drains instances, purges and retires handlers.
GRANT USAGE ON SCHEMA {schema} TO {to};
GRANT SELECT ON {outbox}meta, {outbox}record, {outbox}archive, {outbox}lane, {outbox}instance, {outbox}fence, {outbox}partition, {outbox}handler, {outbox}dedup, {outbox}start, {outbox}dead_letter TO {to};
GRANT UPDATE, DELETE ON {outbox}record, {outbox}lane, {outbox}dead_letter TO {to};
GRANT INSERT ON {outbox}record TO {to};
GRANT USAGE ON SEQUENCE {outbox}record_id_seq TO {to};
GRANT DELETE ON {outbox}archive, {outbox}dedup, {outbox}handler, {outbox}start TO {to};
GRANT UPDATE ON {outbox}meta, {outbox}instance TO {to};
