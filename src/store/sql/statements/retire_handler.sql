-- No more events are scheduled for this handler. Called by AdminStore::retire_handler.
DELETE FROM {outbox}handler WHERE handler = $1
