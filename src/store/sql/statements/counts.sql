-- Records by status. Reads the whole table.
SELECT {int:status}, count(*) FROM {outbox}record GROUP BY status
