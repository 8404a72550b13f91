-- Stopped lanes with the records that stop them. {matching} are conditions, the order and the limit.
SELECT {int:l.partition_no}, l.record_key, l.handler, l.reason, l.record_id, r.event_id, r.record_type,
       {int:coalesce(r.attempts, 0)}, r.last_error, l.held, {age:l.since}
FROM {outbox}lane l LEFT JOIN {outbox}record r ON r.id = l.record_id
WHERE l.record_id > $1 AND {matching}
