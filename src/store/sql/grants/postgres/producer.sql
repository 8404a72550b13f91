-- A process that only schedules.
GRANT USAGE ON SCHEMA {schema} TO {to};
GRANT INSERT ON {outbox}record, {outbox}dedup TO {to};
GRANT SELECT ON {outbox}handler TO {to};
GRANT USAGE ON SEQUENCE {outbox}record_id_seq TO {to};
