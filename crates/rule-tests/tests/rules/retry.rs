//! Whether and when a failed record is tried again.

use std::time::Duration;

use keylane::{
    RetryPolicy,
    rules::retry::{Backoff, Fault},
};
use proptest::{collection::vec, prelude::*};

use super::millis;

const HOUR: u64 = 3_600_000;

pub(crate) fn policy() -> impl Strategy<Value = RetryPolicy> {
    let backoff = prop_oneof![
        millis(0..=HOUR).prop_map(|delay| Backoff::Fixed { delay }),
        (millis(0..=HOUR), millis(0..=HOUR))
            .prop_map(|(initial, increment)| Backoff::Linear { initial, increment }),
        (millis(0..=HOUR), 1.0..10.0_f64)
            .prop_map(|(initial, multiplier)| Backoff::Exponential { initial, multiplier }),
    ];
    let retries = prop_oneof![4 => 0..20_u32, 1 => any::<u32>()];
    (backoff, retries, millis(1..=24 * HOUR), 0.0..=1.0_f64, classes(), classes()).prop_map(
        |(backoff, max_retries, max_delay, jitter, retry_on, never_on)| {
            // A cap below the first delay is refused.
            let max_delay = match backoff {
                Backoff::Fixed { delay: first }
                | Backoff::Linear { initial: first, .. }
                | Backoff::Exponential { initial: first, .. } => max_delay.max(first),
                _ => max_delay,
            };
            let policy =
                RetryPolicy::default().backoff(backoff).max_retries(max_retries).max_delay(max_delay);
            policy.jitter(jitter).retry_on(retry_on).never_on(never_on)
        },
    )
}

pub(crate) fn fault() -> impl Strategy<Value = Fault<'static>> {
    let class = proptest::option::of(proptest::sample::select(vec!["busy", "refused", "timeout", "other"]));
    let retry_after = proptest::option::of(millis(0..=48 * HOUR));
    (any::<bool>(), class, retry_after, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(permanent, class, retry_after, unavailable, undecodable, expired)| Fault {
            permanent,
            class,
            retry_after,
            unavailable,
            undecodable,
            expired,
        },
    )
}

fn classes() -> impl Strategy<Value = Vec<String>> {
    vec(proptest::sample::select(vec!["busy", "refused", "timeout"]).prop_map(str::to_owned), 0..3)
}

/// The policy without its lists of classes.
fn unlisted() -> impl Strategy<Value = RetryPolicy> {
    policy().prop_map(|policy| policy.retry_on([""; 0]).never_on([""; 0]))
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn no_delay_is_longer_than_the_cap_and_its_jitter(
        policy in policy(), fault in fault(), failures in 1..=u32::MAX, roll in 0.0..1.0_f64,
    ) {
        if let Some(delay) = policy.delay(failures, fault, roll) {
            // A microsecond for the rounding of floating point.
            let cap = policy.max_delay.mul_f64(1.0 + policy.jitter) + Duration::from_micros(1);
            prop_assert!(delay <= cap, "{delay:?} over {cap:?}");
        }
    }

    #[test]
    fn without_jitter_the_delay_never_shrinks(policy in unlisted(), failures in 1..200_u32) {
        let policy = policy.jitter(0.0).max_retries(u32::MAX);
        let delay = |failures| policy.delay(failures, Fault::default(), 0.5);
        prop_assert!(delay(failures).is_some());
        prop_assert!(delay(failures) <= delay(failures + 1));
    }

    #[test]
    fn jitter_stays_within_its_share(policy in unlisted(), roll in 0.0..1.0_f64, failures in 1..20_u32) {
        let policy = policy.max_retries(u32::MAX);
        let steady = policy.clone().jitter(0.0);
        let delay = |policy: &RetryPolicy| policy.delay(failures, Fault::default(), roll).unwrap().as_secs_f64();
        let away = (delay(&policy) - delay(&steady)).abs();
        prop_assert!(away <= delay(&steady) * policy.jitter + 1e-6);
    }

    #[test]
    fn retries_end_exactly_when_they_are_spent(policy in unlisted(), failures in 1..=u32::MAX, roll in 0.0..1.0_f64) {
        for failures in [failures, policy.max_retries.max(1), policy.max_retries.saturating_add(1)] {
            let retried = policy.delay(failures, Fault::default(), roll).is_some();
            prop_assert_eq!(retried, failures <= policy.max_retries, "failures {}", failures);
        }
    }

    #[test]
    fn permanent_errors_are_never_retried(policy in policy(), fault in fault(), failures in 1..20_u32) {
        prop_assert_eq!(policy.delay(failures, Fault { permanent: true, ..fault }, 0.5), None);
    }

    #[test]
    fn the_lists_of_classes_decide(policy in policy(), fault in fault()) {
        let policy = policy.max_retries(1);
        let on = |list: &[String]| fault.class.is_some_and(|class| list.iter().any(|listed| listed == class));
        let wanted = !on(&policy.never_on) && (policy.retry_on.is_empty() || on(&policy.retry_on));
        let retried = policy.delay(1, Fault { permanent: false, ..fault }, 0.5).is_some();
        prop_assert_eq!(retried, wanted);
    }

    #[test]
    fn the_wish_of_an_error_is_kept_up_to_the_cap(policy in unlisted(), wish in millis(0..=48 * HOUR)) {
        let policy = policy.max_retries(1);
        let fault = Fault { retry_after: Some(wish), ..Fault::default() };
        prop_assert_eq!(policy.delay(1, fault, 0.9), Some(wish.min(policy.max_delay)));
    }

    #[test]
    fn these_policies_have_no_problems(policy in policy()) {
        prop_assert_eq!(policy.problems("retry"), Vec::<String>::new());
    }
}

/// The delay became the longest one when the power of the multiplier was infinite.
#[test]
fn a_delay_of_zero_stays_zero_however_often_a_record_has_failed() {
    let policy = RetryPolicy::exponential().initial_delay(Duration::ZERO).max_retries(u32::MAX);
    for failures in [1, 2, 1024, 1025, 1026, u32::MAX] {
        assert_eq!(
            policy.delay(failures, Fault::default(), 0.5),
            Some(Duration::ZERO),
            "failures {failures}"
        );
    }
}
