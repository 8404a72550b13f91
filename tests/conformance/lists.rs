//! The cases by name, with the stores that run them; the table in `main.rs` gives the reasons.

/// One test per case, on a new outbox that is removed if the case passes.
macro_rules! stamp {
    ($target:ident; $($theme:ident { $($case:ident)* })*) => {$($(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let Some(outbox) = crate::outbox::Outbox::<crate::target::$target>::open().await else { return };
            crate::$theme::$case(&outbox).await;
            outbox.erase().await;
        }
    )*)*};
}

macro_rules! everywhere {
    ($target:ident) => {
        stamp! { $target;
            claimed {
                a_claim_takes_what_is_pending_and_tells_its_token
                claims_go_on_where_the_last_one_ended
                two_claimers_never_hold_one_record
                a_claim_comes_again_after_its_lease_under_a_larger_token
                a_claim_that_outlived_its_lease_overwrites_nothing
                a_renewed_claim_stays_and_one_that_is_gone_is_told
                each_outcome_is_written_once
                completed_claims_are_archived_or_kept_too
                claims_and_outcomes_take_what_they_name_and_nothing_between
                a_claimed_record_is_not_cancelled
                what_ran_out_twice_is_claimed_as_a_suspect
                an_outcome_ends_a_suspicion
                tables_in_use_do_not_change_their_mode
            }
            cancelling {
                what_is_cancelled_never_becomes_due
                a_cancel_that_is_rolled_back_cancels_nothing
                an_event_is_cancelled_where_it_was_scheduled
                only_what_is_not_due_and_never_tried_is_cancelled
                a_cancelled_dedup_key_is_free_again
                a_cancel_leaves_a_dedup_key_that_another_event_has_got
            }
            expiring {
                each_fetch_brings_how_long_until_the_deadline
                a_deadline_of_many_days_comes_back
                a_retry_is_due_at_the_deadline_at_the_latest
                what_has_expired_counts_no_attempt_and_is_repaired_without_a_deadline
            }
            crashes {
                a_crash_counts_for_what_was_owned_and_for_calls_that_had_not_ended
                who_lets_go_or_is_late_has_not_crashed
                a_partition_that_is_calm_is_suspected_no_more
                repairing_a_record_clears_its_crashes
            }
            overview {
                instances_are_listed_with_their_partitions
                partitions_are_listed_with_their_owners
                a_failed_record_is_shown_with_all_that_it_carries
                filters_find_by_handler_key_and_partition
                pages_of_a_filter_follow_one_another
                many_are_repaired_at_once
                repairing_many_leaves_others_as_they_are
            }
            releasing {
                much_that_is_held_returns_in_steps_and_in_order
                a_release_outlives_who_began_it
                a_step_of_a_lane_that_is_not_releasing_returns_nothing
                new_records_wait_behind_a_release
                a_lane_that_is_releasing_can_be_stopped_again
                a_retry_during_a_release_stops_it
                repairing_before_a_large_backlog_returns_it_in_steps
                a_release_leaves_the_lanes_beside_it_alone
            }
            fetching {
                fetch_of_an_empty_outbox_is_empty
                fetch_returns_a_partition_in_id_order
                fetch_takes_the_partitions_in_the_turn_given
                fetch_reads_only_the_partitions_named
                fetch_stops_at_its_limit
                a_fetch_brings_the_handlers_asked_for
                fetch_takes_each_partition_from_its_head
                fetch_leaves_out_what_is_skipped
                what_is_skipped_does_not_use_up_the_limit
                fetch_starts_at_the_head_every_time
                fetch_sees_what_was_committed_since_the_last_fetch
                every_field_comes_back_as_scheduled
                one_event_for_three_handlers_is_three_records
                records_of_one_insert_keep_what_each_has
                a_wrong_partition_number_comes_back_as_it_is
                two_outboxes_on_one_database_do_not_meet
            }
            order {
                five_records_of_one_key_in_one_transaction_keep_their_order
                a_large_batch_keeps_its_order
                a_batch_of_mixed_due_times_keeps_its_order
                a_rolled_back_insert_leaves_nothing
                an_open_transaction_shows_nothing
                what_was_committed_before_comes_first
                ids_are_not_used_again
            }
            scanning {
                a_scan_of_an_empty_outbox_is_empty
                a_scan_is_in_id_order_across_partitions
                a_scan_brings_only_its_partitions
                a_scan_begins_at_its_first_id_and_reaches_so_far
                a_scan_stops_at_its_limit
                what_a_scan_skips_does_not_use_up_its_limit
                a_scan_skips_as_many_as_memory_holds
                only_pending_records_are_scanned_and_found_as_head
                a_scan_brings_the_same_fields_as_a_fetch
                a_head_names_the_least_pending_id_of_its_partitions
                the_horizon_grows_with_every_id
                a_scan_lists_as_many_ids_as_it_is_asked_for
            }
            passing {
                fetches_bring_everything_once
                what_is_pending_again_is_found_after_a_reset
                a_partition_that_is_gained_is_fetched_from_its_head
                an_id_that_was_rolled_back_is_not_waited_for
            }
            content {
                keys_that_differ_in_case_or_blanks_are_lanes_of_their_own
                keys_that_differ_in_accents_are_lanes_of_their_own
                handlers_of_one_key_are_lanes_of_their_own
                a_key_of_255_bytes_goes_all_the_way
                four_byte_characters_come_back
                keys_that_look_like_sql_come_back
                headers_come_back_exactly
                an_empty_payload_comes_back
                a_payload_of_all_bytes_comes_back
                a_payload_of_a_mebibyte_comes_back
                error_texts_come_back_exactly
            }
            time {
                a_record_for_later_is_neither_fetched_nor_due
                a_delayed_record_becomes_due_after_its_delay
                a_due_time_that_has_passed_is_due_at_once
                the_longest_due_comes_first
                due_times_a_microsecond_apart_keep_their_order
                due_reads_only_its_partitions
                due_leaves_out_what_is_skipped_and_stops_at_its_limit
                a_retry_is_due_after_its_delay
                retries_of_one_settle_are_due_by_their_delays
                a_very_long_delay_is_kept
                the_age_counts_from_scheduling
                the_age_goes_on_through_retries
                ages_have_the_precision_of_the_clock
                a_delayed_record_can_be_completed
            }
            membership {
                join_makes_an_active_member
                join_under_a_known_identity_is_refused
                a_dead_identity_cannot_join_again
                a_beat_moves_only_its_own_counter
                a_beat_of_a_stranger_is_refused
                a_beat_brings_the_view
                changes_of_the_cluster_are_counted
                a_draining_member_still_beats
                draining_brings_nobody_back_to_life
                evict_succeeds_with_the_beat_that_was_seen
                evict_is_refused_when_the_beat_has_moved
                evict_without_a_beat_ends_one_that_beats
                evict_succeeds_once
                evict_of_a_stranger_or_of_one_that_left_is_refused
                evict_closes_all_fence_rows_of_that_instance_only
                a_draining_member_can_be_evicted
                leave_ends_beats_and_closes_fence_rows
                an_evicted_instance_that_leaves_stays_fenced
                purge_takes_the_gone_and_keeps_the_living
                purge_keeps_the_dead_that_still_own_something
                the_heartbeats_store_is_the_same_database
            }
            claims {
                all_256_partitions_are_free_at_first
                a_claim_takes_free_partitions_and_counts_a_generation
                a_claim_returns_all_that_is_owned
                two_that_race_for_all_get_disjoint_partitions
                two_that_race_for_the_same_part_of_a_dead_owner_do_not_share
                a_claim_with_a_stale_generation_is_refused
                a_claim_of_a_live_owners_partition_is_refused
                a_claim_of_what_one_owns_already_counts_no_generation
                a_claim_from_a_dead_owner_counts_a_generation
                a_claim_after_an_owner_left_counts_a_generation
                only_active_members_may_claim
                a_draining_member_keeps_what_it_owns
                a_release_frees_only_what_is_named
                a_release_by_another_frees_nothing
                a_late_release_does_not_free_the_next_owners_partition
                a_late_release_does_not_free_what_was_claimed_again
                leaving_frees_everything
            }
            fence {
                a_settle_moves_the_counter_on_by_one
                fence_refuses_a_counter_that_is_behind
                fence_refuses_a_counter_that_is_ahead
                fence_refuses_an_evicted_instance
                fence_refuses_an_instance_that_has_left
                fence_refuses_without_a_fence_row
                fence_refuses_on_another_server
                what_is_bound_to_a_server_hears_no_other
                fence_refuses_a_purged_instance
                a_valid_fence_row_lets_every_change_through
                slots_count_apart
                of_two_settles_with_one_fence_row_one_is_written
                nothing_is_written_after_an_eviction_came_through
                settles_leave_all_fence_rows_in_place
            }
            lost_reply {
                resolve_says_that_it_was_applied
                resolve_says_that_it_was_not_applied
                a_late_statement_is_refused_after_resolve
                a_late_statement_is_refused_after_resolve_and_another_settle
                resolve_may_be_asked_again
                resolve_says_that_the_instance_was_evicted
                resolve_without_a_fence_row_says_closed
                resolve_touches_only_its_own_row
            }
            settling {
                a_store_that_rests_works_on
                a_completed_record_is_deleted
                a_completed_record_is_archived
                a_completed_record_is_kept
                resuming_completions_are_archived_or_kept_too
                a_record_is_completed_once
                a_record_that_is_not_there_is_passed_over
                a_stale_count_of_attempts_writes_nothing
                a_stale_failure_stops_no_lane
                a_stale_completion_resumes_no_lane
                a_failed_record_is_left_alone
                a_held_record_is_left_alone
                a_kept_record_is_left_alone
                a_retry_counts_an_attempt_and_keeps_the_error
                a_settle_of_a_thousand_of_each_is_written
                five_thousand_completions_are_one_settle
                a_settle_takes_what_it_names_and_nothing_between
                settles_do_not_wait_for_the_disk_if_told_so
            }
            lanes {
                a_retry_that_stops_makes_a_lane_row
                a_retry_that_does_not_stop_makes_none
                a_second_retry_keeps_the_lane_row
                stops_are_read_by_partition
                held_records_are_out_of_the_way
                later_holds_are_counted_on
                a_hold_in_the_settle_that_stops_the_lane_is_written
                a_hold_is_refused_once_the_lane_was_released
                a_hold_of_a_record_that_has_ended_is_not_counted
                a_hold_behind_a_record_that_stops_nothing_is_refused
                holds_behind_a_standing_and_a_released_lane_are_told_apart
                a_delayed_record_can_be_held
                completing_what_stopped_a_lane_returns_the_held_in_order
                a_hundred_held_records_come_back_in_order
                held_records_keep_their_attempts
                resume_alone_lets_the_lane_go_on
                resuming_one_lane_leaves_its_neighbours_alone
                several_lanes_go_on_in_one_settle
                a_failure_blocks_its_lane
                a_lane_that_was_retrying_turns_blocked
                a_failure_that_continues_lets_its_lane_go_on
                a_failure_that_continues_leaves_a_lane_stopped_by_another
                two_failures_of_one_lane_stop_it_once
            }
            unroutable {
                an_unroutable_record_stands_still_and_counts_no_attempt
                an_unroutable_lane_goes_on_where_its_handler_is_known
                several_unroutable_records_of_a_lane_come_back_together
                an_unroutable_record_in_a_stopped_lane_comes_back_with_it
            }
            repairing {
                a_failed_record_is_retried_from_the_first_attempt
                a_failed_record_is_retried_with_another_payload
                a_discarded_record_is_gone_and_its_lane_goes_on
                only_failed_records_are_repaired
                a_record_is_repaired_once
                a_failure_that_continued_can_be_repaired_too
                records_are_counted_by_status
                stopped_lanes_say_what_stops_them
                a_lane_whose_record_is_gone_is_still_listed
                stopped_lanes_and_failures_are_listed_in_pages
                failed_records_are_listed_with_their_event
                kept_records_are_purged_by_age
                archived_records_are_purged_by_age
                purge_takes_nothing_that_is_not_done
            }
            dedup {
                a_dedup_key_is_inserted_once
                a_dedup_key_is_inserted_once_in_a_transaction
                a_dedup_key_is_rolled_back_with_its_transaction
                dedup_keys_differ_in_case_and_blanks
                a_dedup_key_of_255_bytes_is_inserted_once
                a_second_dedup_key_waits_for_the_first_to_commit
                a_second_dedup_key_is_inserted_if_the_first_rolls_back
                dedup_keys_are_purged_by_their_own_age
            }
            dead_letters {
                a_dead_letter_has_its_record_and_its_cause
                a_dead_letter_is_kept_once_and_outlives_its_record
                dead_letters_are_listed_by_filters_and_in_pages
                dead_letters_are_scheduled_again_in_their_order
            }
            routes {
                routes_can_be_published_again
                routes_can_be_published_by_two_at_once
                a_retired_handler_is_taken_out_of_every_type
                a_list_is_published_as_a_whole
                a_thousand_routes_are_published_at_once
            }
            strict {
                strict_makes_the_second_of_a_key_wait
                strict_lets_the_second_go_on_after_a_rollback
                strict_locks_a_key_twice_in_a_transaction
                strict_locks_a_thousand_keys
                strict_transactions_that_overlap_come_one_after_another
            }
            transactional {
                effect_and_completion_are_committed_together
                on_another_server_nothing_is_committed
                completions_in_a_transaction_are_archived_or_kept_too
                nothing_is_called_when_the_right_to_it_has_gone
                a_failure_takes_the_effect_back
                an_evicted_instance_commits_no_effect
                a_fence_row_that_moved_on_commits_no_effect
                a_record_settled_by_another_commits_no_effect
                an_effect_happens_once_however_often_it_is_tried
                a_completion_in_a_transaction_lets_its_lane_go_on
                a_dropped_run_leaves_nothing
                many_completions_are_one_transaction
                many_completions_are_archived_or_kept_too
                one_record_settled_by_another_refuses_all
                an_evicted_instance_commits_none_of_many
                a_transaction_completes_what_is_claimed_and_nothing_else
            }
            schema {
                a_migrated_schema_fits
                migrating_again_changes_nothing
                four_may_migrate_at_once
            }
            workload {
                nothing_overtakes_the_five_percent_that_fail_once
            }
        }
    };
}
