-- The held records of a lane are pending again; their ids keep their order.
UPDATE {outbox}record {by:{index}record_pending} SET status = 0
WHERE partition_no = $1 AND status = 3 AND record_key = $2 AND handler = $3
