-- Live instances, then ended ones, the latest first, with the number of their partitions.
SELECT i.instance_id, i.name, i.version, i.state, {age:i.started_at}, {age:i.last_beat_at},
       (SELECT count(*) FROM {outbox}partition p WHERE p.owner = i.instance_id)
FROM {outbox}instance i
ORDER BY CASE WHEN i.state IN ('ACTIVE', 'DRAINING') THEN 0 ELSE 1 END, i.instance_id DESC LIMIT $1
