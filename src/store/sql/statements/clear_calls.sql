-- What is noted of records that are gone.
{delete:start by {index}start_partition}
WHERE partition_no IN ({partitions}) AND NOT EXISTS (SELECT 1 FROM {outbox}record r {by:PRIMARY} WHERE r.id = record_id)
