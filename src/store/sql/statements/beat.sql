-- One heartbeat. If no row is written, this instance has been evicted. Called by ClusterStore::beat.
UPDATE {outbox}instance {by:PRIMARY} SET beat = beat + 1, last_beat_at = {now}
WHERE instance_id = $1 AND state IN ('ACTIVE', 'DRAINING')
