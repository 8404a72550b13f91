-- The counter of a fence row, after a settle whose reply was lost. Called by RecordStore::resolve.
SELECT counter FROM {outbox}fence WHERE instance_id = $1 AND slot = $2
