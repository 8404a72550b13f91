//! The cases of claimed mode, which run on every store.

macro_rules! claimed {
    ($target:ident, by_sql) => {
        claimed!($target);
        stamp! { $target;
            triggers {
                an_outcome_that_is_refused_keeps_its_claim
            }
        }
    };
    ($target:ident) => {
        stamp! { $target;
            claimed {
                two_processes_share_records_and_call_each_once
                a_commit_is_handed_over_at_once
                failures_are_retried_and_spent_ones_are_repaired
                a_fallback_takes_what_is_spent
                batches_of_any_keys_and_of_one_key_are_called
                a_transactional_handler_has_each_effect_once
                a_handler_that_outlasts_its_lease_is_called_once
                claims_of_a_crashed_process_come_again_after_the_lease
                a_record_that_no_process_survives_is_set_aside
                a_shutdown_gives_back_what_waits
                a_slow_handler_holds_no_other_back
                a_record_that_no_handler_takes_is_left_to_other_builds
                the_modes_do_not_meet
                what_needs_an_order_is_refused
            }
        }
    };
}
