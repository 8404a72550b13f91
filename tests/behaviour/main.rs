//! The public API of the library, as a user sees it: on PostgreSQL, MariaDB, MySQL, SQLite and in memory,
//! under names such as `postgres::nothing_overtakes_what_fails_once`.
//!
//! The servers are those of `dev/services`; their addresses come from the environment. To add a case, write
//! it in the module of its theme and name it in a list below. A case about one database or none is a
//! `#[tokio::test]` in its module.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a case fails by panicking")]

mod admin;
mod batches;
mod blocked;
mod cancelling;
#[macro_use]
mod claimed_list;
mod claimed;
mod codecs;
mod connections;
mod crossing;
mod dead_letters;
mod declarations;
mod delayed;
mod delivering;
mod durability;
mod expiring;
mod fallbacks;
#[macro_use]
mod failures_list;
mod faults;
mod finishing;
mod health;
mod hostile;
mod leases;
mod ledger;
mod messages;
mod mistakes;
mod nested;
mod notifications;
mod on_connect;
mod options;
mod ordering;
mod outages;
mod poolers;
mod quarantine;
mod recorder;
mod refusals;
mod retrying;
mod rights;
mod routing;
mod settings;
mod sharing;
mod silence;
mod stage;
mod starting;
mod stopping;
mod stuck;
#[allow(dead_code, unused_imports, reason = "shared with the conformance suite, which needs more of it")]
#[path = "../conformance/target.rs"]
mod target;
mod transactional_batches;
mod transactions;
mod triggers;
mod unavailable;
mod unroutable;
mod user;

/// One test per case, on a new stage that is removed if the case passes.
macro_rules! stamp {
    ($target:ident; $($theme:ident { $($case:ident)* })*) => {$($(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let Some(stage) = crate::stage::Stage::<crate::target::$target>::open().await else { return };
            crate::$theme::$case(&stage).await;
            stage.erase().await;
        }
    )*)*};
}

macro_rules! everywhere {
    ($target:ident) => {
        stamp! { $target;
            delivering {
                an_event_is_delivered_once_with_all_that_is_known_of_it
                headers_of_the_task_that_schedules_are_those_of_its_events
                a_rollback_delivers_nothing
                a_transaction_of_the_outbox_commits_and_wakes
                work_that_fails_is_rolled_back
                thousands_scheduled_at_once_are_delivered_in_order
                an_empty_list_schedules_nothing
                two_handlers_of_a_type_have_a_lane_each
                a_generic_handler_takes_every_type
                a_generic_handler_takes_the_types_of_its_list
                a_raw_event_is_delivered_as_it_is
            }
            routing {
                a_process_without_handlers_schedules_for_another
                a_handler_of_a_pattern_is_given_what_is_of_it
                the_first_event_goes_to_the_handlers_of_others_too
                a_list_that_is_too_old_is_read_again
                producers_meet_all_new_handlers_or_none
                workers_learn_of_new_handlers_by_their_polls
                a_new_build_schedules_for_its_handlers_before_its_start
                a_retired_handler_gets_nothing_more
                handlers_of_the_macros_are_called
            }
            notifications {
                traffic_of_another_process_is_found_early
            }
            ordering {
                nothing_overtakes_what_fails_once
                order_holds_across_restarts
                instances_that_join_and_leave_lose_and_repeat_nothing
                a_key_takes_up_where_another_instance_has_stopped
                a_slow_key_does_not_starve_the_others
                a_slow_handler_does_not_starve_the_others
            }
            cancelling {
                a_cancelled_event_is_not_delivered
            }
            expiring {
                what_has_expired_is_not_called
                what_has_expired_blocks_its_key_until_a_person_retries_it
                a_deadline_ends_retries
                a_deadline_ends_a_pause_between_retries
                what_expires_in_a_batch_leaves_it_at_its_place
                what_expires_in_a_transactional_run_leaves_it_at_its_place
            }
            nested {
                a_transaction_within_a_handler_is_a_part_of_its_own
                a_transaction_that_is_left_open_within_fails
                a_handler_that_puts_another_transaction_in_place_is_found_out
                work_that_begins_within_is_taken_back_as_a_whole
            }
            codecs {
                an_event_arrives_as_its_codec_wrote_it
            }
            dead_letters {
                what_fails_goes_to_the_table_and_its_key_goes_on
            }
            blocked {
                a_blocked_lane_is_listed_with_what_waits_behind
                a_record_repaired_behind_a_lane_that_went_on_is_found
                retry_lets_a_lane_go_on_in_order
                replace_payload_delivers_another_payload
                discard_lets_a_lane_go_on_without_the_record
                another_process_lets_lanes_go_on
                what_is_scheduled_meanwhile_comes_after
                a_blocked_lane_stays_blocked_across_a_restart
                thousands_behind_a_blocked_key_cost_the_others_nothing
                a_large_backlog_returns_in_order_whatever_happens_meanwhile
            }
            unroutable {
                a_record_of_an_unknown_handler_waits_and_counts_no_attempt
                an_instance_that_knows_the_handler_takes_the_lane_up
                a_type_that_its_handler_does_not_know_waits
                unroutable_records_of_many_keys_cost_the_others_nothing
                a_payload_of_a_later_version_waits_for_a_build_that_reads_it
            }
            delayed {
                a_delayed_event_is_not_early_and_holds_nothing_back
                an_event_for_a_time_is_not_early
                a_delayed_event_survives_a_restart
                many_that_are_due_at_once_are_all_delivered
            }
            batches {
                a_batch_is_a_run_of_one_key
                results_after_the_first_failure_do_not_count
                results_after_a_failure_for_good_do_not_count
                without_a_stop_each_result_counts
                records_without_a_result_come_again
                a_batch_that_returns_nothing_has_failed
                a_batch_that_panics_fails_its_first_record
                a_payload_that_does_not_fit_ends_its_batch
                a_mixed_batch_keeps_the_order_of_each_key
                a_mixed_batch_with_few_results_tries_the_others_again
                a_generic_batch_takes_records_of_all_types_and_keys
                a_generic_batch_whose_target_is_away_keeps_the_order_of_each_key
            }
            transactional_batches {
                a_batch_is_committed_as_a_whole
                what_fails_in_a_batch_fails_alone
                every_second_of_a_batch_fails_once
                a_batch_of_one_key_is_a_run_of_it
                what_is_spent_in_a_batch_blocks_its_key
                a_payload_that_does_not_fit_fails_alone
            }
            transactions {
                effect_and_completion_are_committed_together
                a_failed_attempt_leaves_no_effect
                what_is_held_behind_an_unavailable_target_goes_on
                a_transaction_waits_for_the_end_of_the_record_before
                an_attempt_that_takes_too_long_leaves_no_effect
                what_is_spent_goes_to_the_fallback_without_an_effect
                an_abort_in_the_middle_leaves_one_effect
                an_evicted_handler_leaves_no_second_effect
                what_a_handler_schedules_is_an_effect_too
            }
            options {
                a_dedup_key_schedules_once
                a_dedup_key_that_was_rolled_back_was_not_used
                an_event_id_that_is_given_is_kept
                headers_go_to_every_handler_as_given
            }
            starting {
                a_worker_pool_of_the_same_tables_is_taken
                a_thousand_handlers_are_published_as_they_start
            }
            admin {
                a_drained_instance_hands_over_and_stays_away
                the_only_instance_can_be_drained
                what_has_failed_is_repaired_in_steps
            }
            stopping {
                a_shutdown_finishes_what_is_in_flight
                handlers_that_hang_are_cancelled_and_reported
                dropped_workers_stop_at_once_and_others_take_over
                an_evicted_instance_joins_again_under_a_new_identity
                evictions_lose_nothing_and_invert_nothing
                two_outboxes_in_one_database_do_not_meet
                polls_tell_of_changes_in_the_cluster
            }
            messages {
                a_failed_record_is_told_with_all_that_finds_it
            }
            hostile {
                an_observer_that_blocks_stops_nothing
                a_handler_that_waits_and_blocks_stops_its_own_lane_only
                a_handler_that_blocks_among_short_calls_stops_its_own_lane_only
                a_handler_that_is_slow_and_blocks_stops_its_own_lane_only
                a_handler_that_wakes_the_workers_and_blocks_stops_its_own_lane_only
                an_error_whose_text_panics_fails_its_record
                a_future_that_panics_when_it_is_dropped_has_timed_out
                a_panic_before_the_future_is_a_failed_attempt
                an_observer_that_panics_stops_nothing
                what_has_ended_is_written_while_later_calls_run
                a_lane_released_by_another_process_goes_on_in_a_crowded_partition
            }
            silence {
                payloads_and_keys_are_never_logged
            }
            refusals {
                a_refusal_leaves_the_transaction_as_it_was
                one_bad_event_of_many_writes_none
                an_event_that_is_no_json_is_refused
                a_due_time_out_of_range_is_refused
                too_many_keys_for_the_strict_order_are_refused
            }
        }
    };
}

/// Cases with rows that only SQL can write.
macro_rules! by_sql {
    ($target:ident) => {
        stamp! { $target;
            messages {
                schedule_before_migrate_says_what_to_do
                an_error_tells_its_cause_and_no_value
            }
            nested {
                a_handler_that_ends_its_transaction_is_found_out
            }
            triggers {
                an_outcome_that_is_refused_keeps_its_own_key_waiting
            }
            stopping {
                partitions_that_were_moved_by_hand_have_one_owner
            }
            quarantine {
                a_record_in_a_wrong_partition_is_set_aside
            }
            refusals {
                a_connection_in_no_transaction_is_refused
                a_transaction_that_was_begun_by_hand_is_recognised
            }
            starting {
                a_schema_that_was_not_migrated_is_told
                a_newer_schema_is_told
                another_hash_is_told
                missing_partition_rows_are_told
            }
        }
    };
}

/// Cases with handwritten statements, for databases without the function.
macro_rules! by_hand {
    ($target:ident) => {
        stamp! { $target;
            rights {
                the_insert_of_the_page_writes_one_row_for_each_handler
            }
        }
    };
}

/// Cases on servers that ask for a password.
macro_rules! with_passwords {
    ($target:ident) => {
        stamp! { $target;
            mistakes {
                a_wrong_password_is_told
            }
        }
    };
}

/// Cases with connections that can be cut.
macro_rules! on_servers {
    ($target:ident) => {
        stamp! { $target;
            connections {
                a_shutdown_closes_its_connections
                an_idle_process_holds_few_connections
                new_credentials_of_the_pool_are_taken_up
            }
            mistakes {
                a_database_that_is_not_there_is_told
                a_user_without_rights_is_told
            }
            on_connect {
                workers_run_what_the_pool_runs_after_it_has_connected
                a_statement_that_cannot_run_is_told_at_the_start
            }
            rights {
                each_role_does_its_work_with_the_rights_of_its_script
            }
            outages {
                start_waits_until_the_database_is_there
                an_outage_is_a_line_at_each_end
                an_outage_is_told_by_the_health_of_the_workers
                an_outage_in_the_middle_loses_and_repeats_nothing
            }
        }
    };
}

/// Cases with several open transactions. SQLite has one writer, and MySQL behaves as MariaDB here.
macro_rules! several_writers {
    ($target:ident) => {
        stamp! { $target;
            crossing {
                fetches_of_ten_pass_over_nothing
                large_fetches_pass_over_nothing
                a_handover_between_fetches_passes_over_nothing
            }
        }
    };
}

mod postgres {
    everywhere!(PostgresTarget);
    failures!(PostgresTarget);
    claimed!(PostgresTarget, by_sql);
    several_writers!(PostgresTarget);
    by_sql!(PostgresTarget);
    on_servers!(PostgresTarget);
}

mod mariadb {
    everywhere!(MariaDbTarget);
    failures!(MariaDbTarget);
    claimed!(MariaDbTarget, by_sql);
    several_writers!(MariaDbTarget);
    by_sql!(MariaDbTarget);
    by_hand!(MariaDbTarget);
    on_servers!(MariaDbTarget);
    with_passwords!(MariaDbTarget);
}

mod mysql {
    everywhere!(MySqlTarget);
    failures!(MySqlTarget);
    claimed!(MySqlTarget, by_sql);
    by_sql!(MySqlTarget);
    by_hand!(MySqlTarget);
    on_servers!(MySqlTarget);
    with_passwords!(MySqlTarget);
}

mod sqlite {
    everywhere!(SqliteTarget);
    failures!(SqliteTarget);
    claimed!(SqliteTarget, by_sql);
    by_sql!(SqliteTarget);
    by_hand!(SqliteTarget);
}

mod memory {
    everywhere!(MemoryTarget);
    failures!(MemoryTarget);
    claimed!(MemoryTarget);
    several_writers!(MemoryTarget);
}
