-- Dead letters. {matching} are conditions, the order and the limit.
SELECT id FROM {outbox}dead_letter {by:PRIMARY} WHERE id > $1 AND {matching}
