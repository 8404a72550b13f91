-- A process that only schedules. The key table is for the strict order level.
GRANT INSERT ON {outbox}record TO {to};
GRANT INSERT ON {outbox}dedup TO {to};
GRANT SELECT ON {outbox}handler TO {to};
GRANT SELECT, INSERT, UPDATE ON {outbox}key TO {to};
GRANT EXECUTE ON PROCEDURE {outbox}partition_of TO {to};
GRANT EXECUTE ON PROCEDURE {outbox}schedule TO {to};
