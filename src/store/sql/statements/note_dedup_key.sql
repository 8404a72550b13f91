-- Notes a dedup key; no row means that it was there.
{insert_new} {outbox}dedup (dedup_key) VALUES ($1) {or_nothing}
