//! The next step after an attempt, and the change that is written.

use std::time::Duration;

use super::retry::{Fault, RetryPolicy};
use crate::record::{Change, OnFailure};

/// The next step after one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The record is completed.
    Complete,
    /// The record is tried again after the delay.
    Retry {
        /// The time from the write, by the database's clock.
        delay: Duration,
    },
    /// The target is unreachable: the record is tried again after the delay, and no attempt counts.
    Wait {
        /// The time from the write, by the database's clock.
        delay: Duration,
    },
    /// This build cannot decode the record: it waits for another build, and no attempt counts.
    Leave,
    /// The retries are spent: the fallback handler is called.
    Fallback,
    /// The record has failed: the retries are spent, and there is no fallback or the fallback has failed.
    Fail {
        /// Whether the last attempt counts. An expired record was not attempted.
        counted: bool,
    },
}

/// The rules of a handler's lanes after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneRules {
    /// Whether a failing record stops the later records of its lane.
    pub stop_on_first_failure: bool,
    /// What becomes of the lane when a record has failed for good.
    pub on_failure: OnFailure,
}

/// The next step after an attempt of the handler. `failures` includes this attempt if it failed. `waited`
/// is how long the record has waited for an unreachable target.
pub fn after_handler(
    fault: Option<Fault<'_>>,
    failures: u32,
    waited: Duration,
    policy: &RetryPolicy,
    has_fallback: bool,
    roll: f64,
) -> Step {
    let Some(fault) = fault else { return Step::Complete };
    let ends = || if has_fallback { Step::Fallback } else { Step::Fail { counted: !fault.expired } };
    if fault.expired {
        return ends();
    }
    if policy.leaves(fault) {
        return Step::Leave;
    }
    if let Some(delay) = policy.wait(fault, waited) {
        return Step::Wait { delay };
    }
    match policy.delay(failures, fault, roll) {
        Some(delay) => Step::Retry { delay },
        None => ends(),
    }
}

/// The next step after a call of the fallback handler, whose target can be unreachable, too. `counted` is
/// whether the handler was called before.
pub fn after_fallback(
    fault: Option<Fault<'_>>,
    waited: Duration,
    policy: &RetryPolicy,
    counted: bool,
) -> Step {
    let Some(fault) = fault else { return Step::Complete };
    policy.wait(fault, waited).map_or(Step::Fail { counted }, |delay| Step::Wait { delay })
}

/// The change to write for a step. `stopped_lane` is whether this record has stopped its lane.
///
/// [`Step::Fallback`] is not the end of a record, so it has no change.
pub fn change(step: Step, stopped_lane: bool, rules: LaneRules, error: &str) -> Option<Change> {
    let error = error.to_owned();
    match step {
        Step::Complete if stopped_lane => Some(Change::CompleteAndResume),
        Step::Complete => Some(Change::Complete),
        Step::Retry { delay } => {
            Some(Change::Retry { delay, error, stop: rules.stop_on_first_failure, counted: true })
        }
        Step::Wait { delay } => {
            Some(Change::Retry { delay, error, stop: rules.stop_on_first_failure, counted: false })
        }
        Step::Fail { counted } => Some(Change::Fail { error, lane: rules.on_failure, counted }),
        Step::Leave => Some(Change::Unroutable),
        Step::Fallback => None,
    }
}

/// Whether the later records of a lane may go on once this change is durable.
pub fn lane_goes_on(change: &Change) -> bool {
    match change {
        Change::Complete | Change::CompleteAndResume | Change::Resume | Change::Release => true,
        Change::Retry { stop, .. } => !stop,
        Change::Fail { lane, .. } => *lane == OnFailure::Continue,
        Change::Unroutable | Change::Hold { .. } | Change::StopRelease { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: LaneRules = LaneRules { stop_on_first_failure: true, on_failure: OnFailure::Block };
    const GO_ON: LaneRules = LaneRules { stop_on_first_failure: false, on_failure: OnFailure::Continue };

    fn step(fault: Option<Fault<'_>>, failures: u32, has_fallback: bool) -> Step {
        after_handler(fault, failures, Duration::ZERO, &RetryPolicy::default(), has_fallback, 0.5)
    }

    fn after_the_fallback(fault: Option<Fault<'_>>, counted: bool) -> Step {
        after_fallback(fault, Duration::ZERO, &RetryPolicy::default(), counted)
    }

    #[test]
    fn what_has_expired_is_not_retried_and_counts_no_attempt() {
        let fault = Some(Fault { expired: true, retry_after: Some(Duration::ZERO), ..Fault::default() });
        assert_eq!(step(fault, 0, true), Step::Fallback);
        assert_eq!(step(fault, 0, false), Step::Fail { counted: false });
        assert_eq!(after_the_fallback(Some(Fault::default()), false), Step::Fail { counted: false });
    }

    #[test]
    fn success_completes() {
        assert_eq!(step(None, 0, true), Step::Complete);
    }

    #[test]
    fn failures_are_retried_until_spent_then_fall_back_or_fail() {
        let fault = Some(Fault::default());
        assert_eq!(step(fault, 1, true), Step::Retry { delay: Duration::from_secs(2) });
        assert_eq!(step(fault, 3, true), Step::Retry { delay: Duration::from_secs(8) });
        assert_eq!(step(fault, 4, true), Step::Fallback);
        assert_eq!(step(fault, 4, false), Step::Fail { counted: true });
    }

    #[test]
    fn a_permanent_error_skips_the_retries() {
        let fault = Some(Fault { permanent: true, ..Fault::default() });
        assert_eq!(step(fault, 1, true), Step::Fallback);
        assert_eq!(step(fault, 1, false), Step::Fail { counted: true });
    }

    #[test]
    fn the_fallback_ends_it_either_way() {
        assert_eq!(after_the_fallback(None, true), Step::Complete);
        assert_eq!(after_the_fallback(Some(Fault::default()), true), Step::Fail { counted: true });
    }

    #[test]
    fn a_fallback_whose_target_is_away_is_called_again() {
        let delay = Duration::from_secs(5);
        let away = Some(Fault { unavailable: true, retry_after: Some(delay), ..Fault::default() });
        assert_eq!(after_the_fallback(away, true), Step::Wait { delay });
        let policy = RetryPolicy::default();
        assert_eq!(after_fallback(away, policy.max_unavailable, &policy, true), Step::Fail { counted: true });
    }

    #[test]
    fn a_lane_goes_on_as_its_rules_say() {
        let goes_on = |step, rules| lane_goes_on(&change(step, false, rules, "e").unwrap());
        let retry = Step::Retry { delay: Duration::from_secs(1) };
        assert!(goes_on(Step::Complete, STOP));
        assert!(!goes_on(retry, STOP));
        assert!(goes_on(retry, GO_ON));
        assert!(!goes_on(Step::Fail { counted: true }, STOP));
        assert!(goes_on(Step::Fail { counted: true }, GO_ON));
    }

    #[test]
    fn completing_what_stopped_a_lane_resumes_it() {
        assert_eq!(change(Step::Complete, true, STOP, ""), Some(Change::CompleteAndResume));
        assert_eq!(change(Step::Complete, false, STOP, ""), Some(Change::Complete));
        assert_eq!(change(Step::Fallback, false, STOP, ""), None);
    }
}
