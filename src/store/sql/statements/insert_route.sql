-- A handler is there for the first time. Called by AdminStore::publish_routes.
{insert_new} {outbox}handler (record_type, handler) VALUES ($1, $2) {or_nothing}
