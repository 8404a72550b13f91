-- A process that delivers and schedules.
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}meta TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}record TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}archive TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}dead_letter TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}lane TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}instance TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}fence TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}partition TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}handler TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}dedup TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}start TO {to};
GRANT SELECT, INSERT, UPDATE, DELETE ON {outbox}key TO {to};
GRANT EXECUTE ON PROCEDURE {outbox}partition_of TO {to};
GRANT EXECUTE ON PROCEDURE {outbox}schedule TO {to};
