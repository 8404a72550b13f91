-- The lanes that these records have stopped, and whether so many records are held that they return in steps. The count
-- is of the whole partition, because no index finds the held records of one lane.
SELECT {int:l.partition_no}, l.record_key, l.handler, l.record_id,
       CASE WHEN l.held > {limit} OR 20000 <
            (SELECT SUM(o.held) FROM {outbox}lane o {by:PRIMARY} WHERE o.partition_no = l.partition_no)
       THEN 1 ELSE 0 END, l.reason, l.released_to
FROM {outbox}lane l {by:{index}lane_record} WHERE l.record_id IN ({ids})
