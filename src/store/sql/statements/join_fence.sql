-- A fence row of a process that joins. Called by ClusterStore::join, once per slot.
INSERT INTO {outbox}fence (instance_id, slot, counter) VALUES ($1, $2, 0)
