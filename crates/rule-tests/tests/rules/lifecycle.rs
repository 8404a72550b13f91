//! Each attempt has one next step, and a record that has failed for good is never retried.

use keylane::{
    OnFailure,
    inner::Change,
    rules::lifecycle::{LaneRules, Step, after_fallback, after_handler, change, lane_goes_on},
};
use proptest::{option, prelude::*};

use super::retry::{fault, policy};

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Complete),
        super::millis(0..=1000).prop_map(|delay| Step::Retry { delay }),
        super::millis(0..=1000).prop_map(|delay| Step::Wait { delay }),
        Just(Step::Leave),
        Just(Step::Fallback),
        any::<bool>().prop_map(|counted| Step::Fail { counted }),
    ]
}

fn lane_rules() -> impl Strategy<Value = LaneRules> {
    (any::<bool>(), any::<bool>()).prop_map(|(stop_on_first_failure, block)| LaneRules {
        stop_on_first_failure,
        on_failure: if block { OnFailure::Block } else { OnFailure::Continue },
    })
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn each_attempt_has_its_step(
        fault in option::of(fault()), failures in 1..30_u32, policy in policy(), has_fallback: bool, roll in 0.0..1.0_f64,
        waited in super::millis(0..=100_000_000),
    ) {
        let step = after_handler(fault, failures, waited, &policy, has_fallback, roll);
        if fault.is_some_and(|fault| fault.expired) {
            let expected = if has_fallback { Step::Fallback } else { Step::Fail { counted: false } };
            prop_assert_eq!(step, expected);
            return Ok(());
        }
        if fault.is_some_and(|fault| policy.leaves(fault)) {
            prop_assert_eq!(step, Step::Leave);
            return Ok(());
        }
        if let Some(delay) = fault.and_then(|fault| policy.wait(fault, waited)) {
            prop_assert!(fault.is_some_and(|fault| fault.unavailable) && waited < policy.max_unavailable);
            prop_assert!(delay >= std::time::Duration::from_millis(100), "never a hot loop");
            prop_assert_eq!(step, Step::Wait { delay });
            return Ok(());
        }
        let delay = fault.and_then(|fault| policy.delay(failures, fault, roll));
        let expected = match (fault, delay, has_fallback) {
            (None, ..) => Step::Complete,
            (Some(_), Some(delay), _) => Step::Retry { delay },
            (Some(_), None, true) => Step::Fallback,
            (Some(_), None, false) => Step::Fail { counted: true },
        };
        prop_assert_eq!(step, expected);
        if fault.is_some_and(|fault| fault.permanent) || failures > policy.max_retries {
            let retried = matches!(step, Step::Retry { .. });
            prop_assert!(!retried);
        }
    }

    #[test]
    fn a_fallback_ends_it_unless_its_target_is_away(
        fault in option::of(fault()), policy in policy(), waited in super::millis(0..=100_000_000), counted: bool,
    ) {
        let expected = match (fault, fault.and_then(|fault| policy.wait(fault, waited))) {
            (None, _) => Step::Complete,
            (Some(_), Some(delay)) => Step::Wait { delay },
            (Some(_), None) => Step::Fail { counted },
        };
        prop_assert_eq!(after_fallback(fault, waited, &policy, counted), expected);
    }

    #[test]
    fn each_end_is_written(step in step(), stopped_lane: bool, rules in lane_rules(), error in ".*") {
        let change = change(step, stopped_lane, rules, &error);
        let expected = match step {
            Step::Complete if stopped_lane => Some(Change::CompleteAndResume),
            Step::Complete => Some(Change::Complete),
            Step::Retry { delay } | Step::Wait { delay } => {
                let counted = matches!(step, Step::Retry { .. });
                Some(Change::Retry { delay, error, stop: rules.stop_on_first_failure, counted })
            }
            Step::Fail { counted } => Some(Change::Fail { error, lane: rules.on_failure, counted }),
            Step::Leave => Some(Change::Unroutable),
            Step::Fallback => None,
        };
        prop_assert_eq!(change, expected);
    }

    /// The order of a lane rests on this: no record passes an earlier one that was neither delivered nor
    /// given up, unless the handler said so.
    #[test]
    fn a_lane_passes_only_what_is_done_or_allowed(step in step(), stopped_lane: bool, rules in lane_rules()) {
        if let Some(change) = change(step, stopped_lane, rules, "") {
            let allowed = match step {
                Step::Complete => true,
                Step::Retry { .. } | Step::Wait { .. } => !rules.stop_on_first_failure,
                Step::Fail { .. } => rules.on_failure == OnFailure::Continue,
                Step::Leave | Step::Fallback => false,
            };
            prop_assert_eq!(lane_goes_on(&change), allowed);
        }
    }
}
