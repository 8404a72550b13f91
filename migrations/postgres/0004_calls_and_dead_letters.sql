-- MariaDB and MySQL have procedures that schedule from here on.

UPDATE {outbox}meta SET schema_version = 4 WHERE id = 1;
