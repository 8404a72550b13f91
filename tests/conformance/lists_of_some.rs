//! The cases that not every store runs, by name; the table in `main.rs` gives the reasons.

macro_rules! several_writers {
    ($target:ident) => {
        stamp! { $target;
            cancelling {
                what_is_being_cancelled_is_not_fetched
                what_is_being_cancelled_hides_nothing_that_is_due
                what_is_due_already_is_hidden_by_no_cancel
                a_second_cancel_waits_for_the_first
                a_cancel_without_its_dedup_key_blocks_no_other_key
                who_cancels_holds_no_calm_partition_back
            }
            order {
                a_late_commit_with_a_lower_id_is_not_lost
                a_late_commit_is_fetched_after_the_later_id_was_completed
                many_open_transactions_lose_nothing
                causal_order_holds_if_the_later_transaction_began_first
                causal_order_holds_if_the_later_transaction_wrote_first
                an_open_transaction_does_not_hold_back_the_worker
            }
            passing {
                late_commits_are_not_passed_over
                a_late_commit_is_found_among_thousands_that_are_done
                a_fetch_that_brings_a_record_has_its_causes
                fetches_beside_writers_invert_and_lose_nothing
            }
            open_writers {
                an_open_writer_holds_no_fetch_back
                what_is_committed_late_comes_before_a_later_record_of_its_key
                a_walk_back_that_is_cut_keeps_every_key_in_order
                a_walk_back_leaves_out_what_was_seen
                a_scan_reads_nothing_after_a_transaction_that_it_names
            }
            strict {
                strict_does_not_make_other_keys_wait
                strict_keeps_outboxes_apart
            }
        }
    };
}

macro_rules! by_sql {
    ($target:ident) => {
        stamp! { $target;
            statements {
                statements_write_the_rows_that_schedule_writes
                a_statement_of_a_dedup_key_tells_a_duplicate
                statements_check_what_schedule_checks
            }
            scanning {
                the_least_pending_id_is_found_behind_a_gap
            }
            repairing {
                a_lane_of_an_unknown_reason_is_told
            }
            purging {
                a_purge_takes_more_than_a_batch
                purging_takes_the_stopped_and_their_fence_rows
            }
            schema {
                a_missing_schema_is_named
                a_newer_schema_is_refused
                an_older_schema_is_refused
                another_hash_is_refused
                another_count_of_partitions_is_refused
                missing_partition_rows_are_refused
                a_check_tells_a_lost_table_from_a_good_schema
                the_script_names_every_table
                a_schema_made_from_the_script_fits
                older_tables_of_a_dba_are_brought_up
                a_dba_brings_tables_up_by_the_script_from_their_version
                tables_without_a_version_are_taken_over
                tables_that_differ_are_refused_with_what_they_lack
                a_migration_that_cannot_succeed_fails_at_once
                a_schema_one_version_ahead_is_accepted
            }
        }
    };
}

macro_rules! on_servers {
    ($target:ident) => {
        stamp! { $target;
            claim_locks {
                no_claim_waits_for_another
                no_second_step_waits_for_a_first_one
                a_second_step_takes_nothing_that_is_claimed
                sessions_of_any_isolation_level_never_hold_one_record
            }
            interleaving {
                an_open_settle_makes_the_evictor_wait
                an_open_settle_that_rolls_back_is_refused_afterwards
                an_open_eviction_makes_a_completion_wait_and_refuses_it
                an_open_eviction_makes_a_failure_wait_and_refuses_it
                an_eviction_that_rolls_back_lets_the_settle_through
                a_fence_row_that_is_only_read_leaks
                no_settle_takes_a_fence_row_along
                resolve_waits_for_a_settle_that_still_runs
                a_hold_and_a_release_of_its_lane_do_not_pass_each_other
            }
            open_writers {
                a_prepared_transaction_is_like_an_open_one
            }
            statements {
                a_statement_locks_the_key_as_the_strict_order_does
            }
            plans {
                statements_find_their_rows_by_a_key
                an_open_user_transaction_holds_back_no_outcome
                an_open_user_transaction_holds_back_no_repairing
                an_open_user_transaction_holds_back_no_purge
            }
            purging {
                a_purge_of_many_dedup_keys_comes_in_batches
            }
            contention {
                a_deadlock_of_two_rows_is_told_to_try_again
                a_deadlock_of_strict_keys_is_told_to_try_again
                a_lock_that_is_not_granted_is_told_to_try_again
                a_settle_that_waits_too_long_gives_up_and_is_not_written
                a_cancelled_call_does_not_poison_the_next
                open_user_transactions_do_not_hold_back_the_cluster
                a_key_that_is_too_long_is_the_records_fault
            }
            patience {
                a_read_without_an_answer_is_given_more_time_the_next_time
            }
        }
    };
}

macro_rules! on_a_file {
    ($target:ident) => {
        stamp! { $target;
            cancelling {
                a_fetch_waits_for_who_cancels
            }
            contention {
                a_busy_file_is_told_to_try_again
                a_database_in_memory_is_refused
            }
        }
    };
}

/// SQLite has no functions that schedule.
macro_rules! from_sql {
    ($target:ident) => {
        stamp! { $target;
            from_sql {
                the_partition_of_a_key_is_the_same_in_sql
                the_partition_of_any_key_is_the_same_in_sql
                a_key_that_is_empty_or_too_long_is_refused_in_sql
                an_event_scheduled_in_sql_is_fetched_like_any_other
                a_call_that_is_rolled_back_leaves_nothing
                a_type_that_nobody_takes_is_refused_in_sql
                what_workers_could_not_read_is_refused_in_sql
            }
        }
    };
}

macro_rules! by_numbers {
    ($target:ident) => {
        stamp! { $target;
            plans {
                claims_are_found_by_their_ids
                settles_find_their_records_by_id
            }
            numbers {
                the_number_is_given_out_before_the_id
                who_has_written_no_record_is_a_bystander
                rows_by_plain_sql_are_fetched_like_any_other
                an_id_drawn_in_a_savepoint_is_not_passed_over
                a_number_without_an_id_holds_back_no_fetch
                a_scan_and_its_horizon_agree
                ids_drawn_in_advance_are_not_passed_over
                the_last_id_is_never_ahead_of_what_was_drawn
            }
        }
    };
}

/// One test per case, each on its own runtime because the case draws and shrinks.
macro_rules! drawn {
    ($target:ident; $theme:ident { $($case:ident)* }) => {$(
        #[test]
        fn $case() {
            crate::$theme::$case::<crate::target::$target>();
        }
    )*};
}

macro_rules! likeness {
    ($target:ident) => {
        drawn! { $target;
            likeness {
                memory_is_like_it
            }
        }
    };
}

macro_rules! late_below {
    ($target:ident) => {
        stamp! { $target;
            below {
                a_scan_adds_what_is_below_its_first_id
                what_is_below_comes_first_within_the_limit
                only_what_is_pending_and_owned_is_added
                what_is_below_thousands_of_rows_is_added
                what_was_seen_ahead_is_read_without_what_came_since
                a_late_commit_is_brought_while_ids_are_read_ahead
            }
            purging {
                keys_of_the_strict_order_are_purged_unless_locked
            }
        }
    };
}
