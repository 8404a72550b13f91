-- Deletes rows by their keys, which were found before. The list comes first and finds each row by its key: an IN with a
-- list of texts becomes a scan.
DELETE t FROM JSON_TABLE('[{keys}]', '$[*]' COLUMNS (k {column} PATH '$')) AS x
STRAIGHT_JOIN {outbox}{table} AS t FORCE INDEX (PRIMARY) ON t.{key} = {given}
