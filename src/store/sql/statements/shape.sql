-- Fails with the name of a missing table or column that this build needs. Reads no row.
SELECT meta_.id, meta_.schema_version, meta_.partition_count, meta_.partition_hash, meta_.cluster_changes, meta_.created_at, meta_.mode,
       record_.id, record_.created_at, record_.next_attempt_at, record_.completed_at, record_.event_id, record_.attempts, record_.partition_no, record_.status, record_.record_key, record_.handler, record_.record_type, record_.content_type, record_.payload, record_.headers, record_.last_error, record_.dedup_key, record_.expires_at, record_.lock_owner, record_.lock_token, record_.lock_crashes,
       archive_.id, archive_.created_at, archive_.completed_at, archive_.event_id, archive_.attempts, archive_.partition_no, archive_.record_key, archive_.handler, archive_.record_type, archive_.content_type, archive_.payload, archive_.headers,
       lane_.partition_no, lane_.record_key, lane_.handler, lane_.reason, lane_.record_id, lane_.held, lane_.since, lane_.released_to,
       instance_.instance_id, instance_.name, instance_.version, instance_.state, instance_.beat, instance_.started_at, instance_.last_beat_at,
       fence_.instance_id, fence_.slot, fence_.counter,
       partition_.partition_no, partition_.owner, partition_.generation, partition_.claimed_at, partition_.crashes,
       handler_.record_type, handler_.handler, handler_.seen_at,
       dedup_.dedup_key, dedup_.created_at,
       start_.record_id, start_.partition_no, start_.instance_id, start_.crashes,
       dead_.id, dead_.created_at, dead_.failed_at, dead_.event_id, dead_.partition_no, dead_.record_key, dead_.handler, dead_.record_type, dead_.content_type, dead_.payload, dead_.headers, dead_.attempts, dead_.target, dead_.error, dead_.error_class, dead_.error_kind
FROM {outbox}meta AS meta_
LEFT JOIN {outbox}record AS record_ ON 1 = 0
LEFT JOIN {outbox}archive AS archive_ ON 1 = 0
LEFT JOIN {outbox}lane AS lane_ ON 1 = 0
LEFT JOIN {outbox}instance AS instance_ ON 1 = 0
LEFT JOIN {outbox}fence AS fence_ ON 1 = 0
LEFT JOIN {outbox}partition AS partition_ ON 1 = 0
LEFT JOIN {outbox}handler AS handler_ ON 1 = 0
LEFT JOIN {outbox}dedup AS dedup_ ON 1 = 0
LEFT JOIN {outbox}start AS start_ ON 1 = 0
LEFT JOIN {outbox}dead_letter AS dead_ ON 1 = 0
WHERE 1 = 0
