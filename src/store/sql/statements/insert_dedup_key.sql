-- Inserts a dedup key. If no row is written, the key exists.
{insert_new} {outbox}dedup (dedup_key) VALUES ($1) {or_nothing}
