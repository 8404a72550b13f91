-- A process that delivers and schedules.
GRANT USAGE ON SCHEMA {schema} TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}meta, {outbox}record, {outbox}archive, {outbox}lane, {outbox}instance, {outbox}fence, {outbox}partition, {outbox}handler, {outbox}dedup, {outbox}start, {outbox}dead_letter TO {to};
GRANT USAGE, SELECT ON SEQUENCE {outbox}record_id_seq TO {to};
