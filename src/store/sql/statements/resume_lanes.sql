-- These records stop nothing any more.
DELETE FROM {outbox}lane WHERE record_id IN ({ids})
