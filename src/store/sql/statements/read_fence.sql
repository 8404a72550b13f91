-- What became of a settle whose answer was lost. Called by RecordStore::resolve.
SELECT counter FROM {outbox}fence WHERE instance_id = $1 AND slot = $2
