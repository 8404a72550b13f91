//! The cases of handlers that fail, which run on every store.

macro_rules! failures {
    ($target:ident) => {
        stamp! { $target;
            retrying {
                delays_grow_and_are_kept
                a_spent_record_fails_and_blocks_its_key_only
                on_failure_continue_lets_the_key_go_on
                without_a_stop_later_records_pass
                without_a_stop_a_spent_record_blocks_nothing
                a_handlers_own_rules_are_stronger
                a_permanent_error_is_not_retried
                only_listed_classes_are_retried
                excluded_classes_are_not_retried
                an_exclusion_is_stronger_than_a_list
                a_wish_to_wait_is_kept_up_to_the_longest_delay
                a_panic_is_a_failure_with_its_text
                a_call_that_takes_too_long_is_a_failure
                a_long_error_is_cut
                an_error_is_kept_with_its_causes_in_one_line
                a_payload_that_does_not_fit_fails_at_once
            }
            unavailable {
                an_unavailable_target_counts_no_attempt
                a_target_that_is_away_for_long_raises_an_alarm_until_it_is_back
                an_unavailable_target_counts_after_a_limit
            }
            fallbacks {
                a_fallback_takes_over_what_is_spent
                the_default_takes_what_has_none_of_its_own
                a_fallback_that_fails_leaves_the_record_failed
                a_fallback_is_told_what_ended_the_attempt
                a_fallback_that_hangs_or_panics_has_failed
                a_fallback_whose_target_is_away_is_called_again
            }
        }
    };
}
