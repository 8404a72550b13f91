SELECT count(*) FROM {outbox}partition WHERE partition_no BETWEEN 0 AND 255
