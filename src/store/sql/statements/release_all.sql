-- Gives back what is left. Called by ClusterStore::leave.
UPDATE {outbox}partition SET owner = NULL WHERE owner = $1
