//! Whether and when a failed record is tried again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use super::backoff::Backoff;

/// The longest duration of any setting, ten years: longer than any useful wait, and it can be added to any
/// clock.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A retry policy, as plain data: it can be printed, compared and tested.
///
/// The defaults are those of Namastack Outbox: exponential from 2 s, doubling, at most 1 min, three retries,
/// no jitter, every error is retried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// How the delay grows. Default: exponential, 2 s and doubling. Change it if the cause of failures usually
    /// passes sooner or later.
    pub backoff: Backoff,
    /// The number of attempts after the first. Default 3; with 0 a record is never retried. Raise it if failures
    /// usually pass.
    pub max_retries: u32,
    /// The longest delay, before jitter and also for `Retry-After`. Default 1 min. Raise it together with
    /// [`max_retries`](field@Self::max_retries) for long outages.
    #[serde(with = "crate::duration::max_delay")]
    pub max_delay: Duration,
    /// A share of the delay, from 0 to 1: the delay is drawn from `delay * (1 ± jitter)`. Default 0. Raise it
    /// if many records fail at the same time and would be retried at the same time.
    pub jitter: f64,
    /// The classes of errors that are retried. If empty, all are. Default: empty. Set it if few kinds of errors pass
    /// by themselves.
    pub retry_on: Vec<String>,
    /// The classes of errors that are never retried, even if `retry_on` has them. Default: empty. Set it for errors
    /// that no retry fixes.
    pub never_on: Vec<String>,
    /// How long a record waits for an unreachable target, from its first such failure on, as the process that
    /// owns it has seen it. Until then these failures do not count. After it, they are failed attempts like all
    /// others. After a restart or a handover the time starts again. Default 24 h. With 0 they always count.
    /// Shorten it if a record is useless after some time.
    #[serde(with = "crate::duration::max_unavailable")]
    pub max_unavailable: Duration,
    /// How long a record waits for an unreachable target until [`Signal::TargetAway`](crate::Signal) raises
    /// an alarm for its handler, and the health is degraded. Default 5 min. Keep it below `max_unavailable`:
    /// otherwise records fail before the alarm.
    #[serde(with = "crate::duration::unavailable_alarm")]
    pub unavailable_alarm: Duration,
    /// What becomes of a record that this build cannot decode. Default [`OnUndecodable::Wait`]. Change it if no other
    /// build will come.
    pub undecodable: OnUndecodable,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            max_retries: 3,
            max_delay: Duration::from_secs(60),
            jitter: 0.0,
            retry_on: Vec::new(),
            never_on: Vec::new(),
            max_unavailable: Duration::from_secs(24 * 3600),
            unavailable_alarm: Duration::from_secs(300),
            undecodable: OnUndecodable::default(),
        }
    }
}

/// What becomes of a record that the build of its handler cannot decode. In settings: `wait` or `fail`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnUndecodable {
    /// The record waits, with its key, for a build that can decode it. No attempt counts.
    #[default]
    Wait,
    /// The record has failed: its fallback handler is called, or it is FAILED.
    Fail,
}

/// The facts of a failure that the rule needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Fault<'a> {
    /// Whether the error said that no retry can succeed.
    pub permanent: bool,
    /// The class that the error declared.
    pub class: Option<&'a str>,
    /// The delay that the error asked for.
    pub retry_after: Option<Duration>,
    /// Whether the error said that the handler's target is unreachable, so that each call would fail now.
    pub unavailable: bool,
    /// Whether the payload could not be decoded.
    pub undecodable: bool,
    /// Whether the deadline of the record had passed, so that the handler was not called.
    pub expired: bool,
}

/// The shortest wait for an unreachable target, because many lanes ask it at the same time.
const LEAST_WAIT: Duration = Duration::from_millis(100);

impl RetryPolicy {
    /// Exponential backoff with the defaults: 2 s, doubling.
    pub fn exponential() -> Self {
        Self::default()
    }

    /// Always the same delay.
    pub fn fixed(delay: Duration) -> Self {
        Self { backoff: Backoff::Fixed { delay }, ..Self::default() }
    }

    /// A delay that grows by `increment` with each failure.
    pub fn linear(initial: Duration, increment: Duration) -> Self {
        Self { backoff: Backoff::Linear { initial, increment }, ..Self::default() }
    }

    /// No retries.
    pub fn never() -> Self {
        Self { max_retries: 0, ..Self::default() }
    }

    /// Sets how the delay grows.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the delay after the first failure.
    #[must_use]
    pub fn initial_delay(mut self, first: Duration) -> Self {
        match &mut self.backoff {
            Backoff::Fixed { delay } => *delay = first,
            Backoff::Linear { initial, .. } | Backoff::Exponential { initial, .. } => *initial = first,
        }
        self
    }

    /// Makes the backoff exponential with this factor.
    #[must_use]
    pub fn multiplier(mut self, multiplier: f64) -> Self {
        let (Backoff::Fixed { delay: initial }
        | Backoff::Linear { initial, .. }
        | Backoff::Exponential { initial, .. }) = self.backoff;
        self.backoff = Backoff::Exponential { initial, multiplier };
        self
    }

    /// Sets the number of attempts after the first.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// Sets the longest delay.
    #[must_use]
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// Sets the jitter, a share of the delay from 0 to 1.
    #[must_use]
    pub fn jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// Retries only errors of these classes.
    #[must_use]
    pub fn retry_on<C: Into<String>>(mut self, classes: impl IntoIterator<Item = C>) -> Self {
        self.retry_on = classes.into_iter().map(Into::into).collect();
        self
    }

    /// Never retries errors of these classes.
    #[must_use]
    pub fn never_on<C: Into<String>>(mut self, classes: impl IntoIterator<Item = C>) -> Self {
        self.never_on = classes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long a record waits for an unreachable target until its failures count.
    #[must_use]
    pub fn max_unavailable(mut self, limit: Duration) -> Self {
        self.max_unavailable = limit;
        self
    }

    /// Sets how long a record waits for an unreachable target until an alarm is raised.
    #[must_use]
    pub fn unavailable_alarm(mut self, after: Duration) -> Self {
        self.unavailable_alarm = after;
        self
    }

    /// Sets what becomes of a record that this build cannot decode.
    #[must_use]
    pub fn undecodable(mut self, becomes: OnUndecodable) -> Self {
        self.undecodable = becomes;
        self
    }

    /// Whether the record of a failure waits for another build.
    pub fn leaves(&self, fault: Fault<'_>) -> bool {
        fault.undecodable && self.undecodable == OnUndecodable::Wait
    }

    /// The time to wait for an unreachable target, or `None` if the failure counts. `waited` is the time since
    /// the first of the record's failures in a row that found its target unreachable.
    pub fn wait(&self, fault: Fault<'_>, waited: Duration) -> Option<Duration> {
        let wanted = fault.retry_after.unwrap_or(LEAST_WAIT).min(self.max_delay).max(LEAST_WAIT);
        (fault.unavailable && !fault.permanent && waited < self.max_unavailable).then_some(wanted)
    }

    /// The delay before the next attempt, or `None` if the record is not retried.
    ///
    /// `failures` includes this one, so it is at least 1. `roll` is a number in `0..1`.
    pub fn delay(&self, failures: u32, fault: Fault<'_>, roll: f64) -> Option<Duration> {
        if fault.permanent || failures > self.max_retries || !self.retries_class(fault.class) {
            return None;
        }
        if let Some(wanted) = fault.retry_after {
            return Some(wanted.min(self.max_delay));
        }
        let steps = f64::from(failures.saturating_sub(1));
        let seconds = match self.backoff {
            Backoff::Fixed { delay } => delay.as_secs_f64(),
            Backoff::Linear { initial, increment } => initial.as_secs_f64() + steps * increment.as_secs_f64(),
            // The power can be infinite, and its product with zero is not a number.
            Backoff::Exponential { initial, .. } if initial.is_zero() => 0.0,
            Backoff::Exponential { initial, multiplier } => initial.as_secs_f64() * multiplier.powf(steps),
        };
        let capped = seconds.min(self.max_delay.as_secs_f64());
        let spread = 1.0 + self.jitter.clamp(0.0, 1.0) * (2.0 * roll - 1.0);
        Duration::try_from_secs_f64(capped * spread).ok()
    }

    fn retries_class(&self, class: Option<&str>) -> bool {
        let listed = |list: &[String]| class.is_some_and(|class| list.iter().any(|entry| entry == class));
        !listed(&self.never_on) && (self.retry_on.is_empty() || listed(&self.retry_on))
    }

    /// The problems of this policy, each a sentence that begins with `at`.
    pub fn problems(&self, at: &str) -> Vec<String> {
        let mut problems = Vec::new();
        if !(0.0..=1.0).contains(&self.jitter) {
            problems.push(format!("{at}.jitter is {}, but must be a share from 0 to 1", self.jitter));
        }
        if self.max_delay.is_zero() {
            problems.push(format!("{at}.max_delay is 0s: failed records would spin; set it to at least 1ms"));
        }
        if self.max_delay > LONGEST {
            problems.push(format!("{at}.max_delay is {:?}, but must be at most ten years", self.max_delay));
        }
        let (key, first) = match self.backoff {
            Backoff::Fixed { delay } => ("fixed.delay", delay),
            Backoff::Linear { initial, .. } => ("linear.initial", initial),
            Backoff::Exponential { initial, .. } => ("exponential.initial", initial),
        };
        if first > self.max_delay {
            problems.push(format!(
                "{at}.backoff.{key} is {first:?}, but must be at most {at}.max_delay ({:?}), which would cut it",
                self.max_delay
            ));
        }
        if let Backoff::Exponential { multiplier, .. } = self.backoff
            && !(multiplier.is_finite() && multiplier >= 1.0)
        {
            problems.push(format!(
                "{at}.backoff.exponential.multiplier is {multiplier}, but must be a number of at least 1"
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn delays(policy: &RetryPolicy) -> Vec<Option<Duration>> {
        (1..=5).map(|failures| policy.delay(failures, Fault::default(), 0.5)).collect()
    }

    #[test]
    fn the_default_is_two_four_eight_and_then_spent() {
        assert_eq!(delays(&RetryPolicy::default()), [Some(s(2)), Some(s(4)), Some(s(8)), None, None]);
    }

    #[test]
    fn each_setting_is_taken_over_and_leaves_the_others() {
        let policy = RetryPolicy::fixed(s(5)).max_retries(9).max_delay(s(50)).jitter(0.5);
        let policy =
            policy.retry_on(["a"]).never_on(["b"]).max_unavailable(s(7)).undecodable(OnUndecodable::Fail);
        let policy = policy.unavailable_alarm(s(8));
        let expected = RetryPolicy {
            backoff: Backoff::Fixed { delay: s(5) },
            max_retries: 9,
            max_delay: s(50),
            jitter: 0.5,
            retry_on: vec!["a".to_owned()],
            never_on: vec!["b".to_owned()],
            max_unavailable: s(7),
            unavailable_alarm: s(8),
            undecodable: OnUndecodable::Fail,
        };
        assert_eq!(policy, expected);
        assert_eq!(policy.clone().initial_delay(s(6)).backoff, Backoff::Fixed { delay: s(6) });
        let linear = RetryPolicy::linear(s(1), s(2)).initial_delay(s(3)).backoff;
        assert_eq!(linear, Backoff::Linear { initial: s(3), increment: s(2) });
        let growing = Backoff::Exponential { initial: s(5), multiplier: 3.0 };
        assert_eq!(policy.clone().multiplier(3.0), RetryPolicy { backoff: growing, ..expected.clone() });
        assert_eq!(policy.backoff(growing), RetryPolicy { backoff: growing, ..expected });
        assert_eq!(RetryPolicy::never().delay(1, Fault::default(), 0.5), None);
    }

    #[test]
    fn what_is_wrong_with_a_policy_is_told_by_its_key() {
        let told = |policy: RetryPolicy, key: &str| {
            let problems = policy.problems("retry");
            assert!(problems.len() == 1 && problems[0].starts_with(key), "{key}: {problems:?}");
        };
        told(RetryPolicy::default().jitter(1.01), "retry.jitter");
        told(RetryPolicy::default().max_delay(LONGEST + s(1)), "retry.max_delay");
        told(RetryPolicy::fixed(s(61)), "retry.backoff.fixed.delay");
        told(RetryPolicy::linear(s(61), s(1)), "retry.backoff.linear.initial");
        told(RetryPolicy::exponential().initial_delay(s(61)), "retry.backoff.exponential.initial");
        for multiplier in [0.99, f64::INFINITY] {
            told(RetryPolicy::exponential().multiplier(multiplier), "retry.backoff.exponential.multiplier");
        }
        let none = RetryPolicy::fixed(Duration::ZERO).max_delay(Duration::ZERO);
        told(none, "retry.max_delay");
        for good in [
            RetryPolicy::fixed(LONGEST).max_delay(LONGEST).jitter(1.0),
            RetryPolicy::exponential().multiplier(1.0),
        ] {
            assert_eq!(good.problems("retry"), Vec::<String>::new());
        }
        assert_eq!(LONGEST, s(315_360_000));
    }

    #[test]
    fn fixed_and_linear_grow_as_they_say() {
        let fixed = RetryPolicy::fixed(s(5)).max_retries(2);
        assert_eq!(delays(&fixed), [Some(s(5)), Some(s(5)), None, None, None]);
        let linear = RetryPolicy::linear(s(2), s(3)).max_retries(3);
        assert_eq!(delays(&linear), [Some(s(2)), Some(s(5)), Some(s(8)), None, None]);
    }

    #[test]
    fn the_cap_holds_against_overflow() {
        let policy = RetryPolicy::exponential().max_retries(u32::MAX);
        assert_eq!(policy.delay(u32::MAX, Fault::default(), 0.5), Some(s(60)));
    }

    #[test]
    fn classes_decide() {
        let policy = RetryPolicy::default().retry_on(["timeout"]).never_on(["refused"]);
        let delay = |class| policy.delay(1, Fault { class, ..Fault::default() }, 0.5).is_some();
        assert!(delay(Some("timeout")));
        assert!(!delay(Some("refused")));
        assert!(!delay(Some("other")), "not on the list of those retried");
        assert!(!delay(None));
    }

    #[test]
    fn a_target_that_is_away_is_waited_for_within_a_limit() {
        let policy = RetryPolicy::default().max_unavailable(s(10));
        let away = Fault { unavailable: true, retry_after: Some(s(7)), ..Fault::default() };
        assert_eq!(policy.wait(away, s(9)), Some(s(7)));
        assert_eq!(policy.wait(away, s(10)), None);
        assert_eq!(policy.wait(Fault { retry_after: Some(s(700)), ..away }, s(0)), Some(s(60)), "the cap");
        assert_eq!(policy.wait(Fault { retry_after: None, ..away }, s(0)), Some(LEAST_WAIT), "no hot loop");
        assert_eq!(policy.wait(Fault { permanent: true, ..away }, s(0)), None);
        assert_eq!(policy.wait(Fault::default(), s(0)), None);
    }

    #[test]
    fn what_cannot_be_decoded_is_left_unless_it_is_to_fail() {
        let fault = Fault { undecodable: true, permanent: true, ..Fault::default() };
        assert!(RetryPolicy::default().leaves(fault));
        assert!(!RetryPolicy::default().leaves(Fault { undecodable: false, ..fault }));
        assert!(!RetryPolicy::default().undecodable(OnUndecodable::Fail).leaves(fault));
    }

    #[test]
    fn permanent_is_never_retried_and_retry_after_is_kept_to_the_cap() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay(1, Fault { permanent: true, ..Fault::default() }, 0.5), None);
        let wait = |seconds| Fault { retry_after: Some(s(seconds)), ..Fault::default() };
        assert_eq!(policy.delay(1, wait(7), 0.5), Some(s(7)));
        assert_eq!(policy.delay(1, wait(7000), 0.5), Some(s(60)));
    }

    #[test]
    fn jitter_stays_within_its_share() {
        let policy = RetryPolicy::fixed(s(10)).jitter(0.2);
        assert_eq!(policy.delay(1, Fault::default(), 0.0), Some(s(8)));
        assert_eq!(policy.delay(1, Fault::default(), 0.5), Some(s(10)));
        assert!(policy.delay(1, Fault::default(), 0.999).unwrap() < s(12));
    }
}
