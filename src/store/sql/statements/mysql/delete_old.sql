-- Rows by their keys, which were found before. The list goes first and finds each row by its key; of IN, a list of
-- texts becomes a scan.
DELETE t FROM JSON_TABLE('[{keys}]', '$[*]' COLUMNS (k {column} PATH '$')) AS x
STRAIGHT_JOIN {outbox}{table} AS t FORCE INDEX (PRIMARY) ON t.{key} = {given}
