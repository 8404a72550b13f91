//! For any policy that settings allow, delays are bounded, never shrink, and stay within their jitter.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use keylane::{
    RetryPolicy,
    rules::retry::{Backoff, Fault},
};

/// The allowed error of floating point: a share of the delay, and a microsecond.
const ROUNDING: f64 = 1e-9;

pub(crate) fn run(data: &[u8]) {
    // An input that is too short is no case.
    let _ = check(&mut Unstructured::new(data));
}

fn check(input: &mut Unstructured<'_>) -> Result<()> {
    let policy = policy(input)?;
    let (failures, roll) =
        (input.arbitrary::<u32>()?.max(1), f64::from(input.arbitrary::<u32>()?) / 4294967296.0);
    let fault = Fault {
        permanent: input.ratio(1, 8)?,
        class: None,
        retry_after: if input.arbitrary()? { Some(duration(input)?) } else { None },
        unavailable: input.arbitrary()?,
        undecodable: input.arbitrary()?,
        expired: input.arbitrary()?,
    };
    // Every policy has an answer.
    let (delay, wait) = (policy.delay(failures, fault, roll), policy.wait(fault, duration(input)?));
    if !policy.problems("retry").is_empty() {
        return Ok(());
    }
    let is_tried_again = !fault.permanent && failures <= policy.max_retries;
    assert_eq!(delay.is_some(), is_tried_again, "{policy:?} {fault:?} {failures} {roll}");
    if let Some(wait) = wait {
        assert!(wait <= policy.max_delay.max(Duration::from_millis(100)), "{wait:?} {policy:?}");
    }
    if let (Some(delay), Some(wanted)) = (delay, fault.retry_after) {
        assert_eq!(delay, wanted.min(policy.max_delay));
    }
    grows(&policy, failures, roll);
    Ok(())
}

/// The delays after this failure and the next one are those of the policy.
fn grows(policy: &RetryPolicy, failures: u32, roll: f64) {
    let policy = policy.clone().max_retries(u32::MAX);
    let steady = policy.clone().jitter(0.0);
    let after = |policy: &RetryPolicy, failures| {
        let delay = policy.delay(failures, Fault::default(), roll);
        delay.unwrap_or_else(|| panic!("no delay after {failures} of {policy:?}")).as_secs_f64()
    };
    let (now, next) = (after(&steady, failures), after(&steady, failures.saturating_add(1)));
    assert!(now <= next, "{now} s, then {next} s: {policy:?} after {failures}");
    let expected = expected(&policy, failures);
    let slack = 1e-6 + expected * ROUNDING * f64::from(failures.min(1 << 20));
    assert!((now - expected).abs() <= slack, "{now} s instead of {expected} s: {policy:?} after {failures}");
    let spread = (after(&policy, failures) - now).abs();
    assert!(spread <= now * policy.jitter + 1e-6, "{spread} s of {now} s: {policy:?}");
}

/// The delay, computed step by step.
fn expected(policy: &RetryPolicy, failures: u32) -> f64 {
    let most = policy.max_delay.as_secs_f64();
    let (mut delay, multiplier, increment) = match policy.backoff {
        Backoff::Fixed { delay } => (delay.as_secs_f64(), 1.0, 0.0),
        Backoff::Linear { initial, increment } => {
            return (initial.as_secs_f64() + f64::from(failures - 1) * increment.as_secs_f64()).min(most);
        }
        Backoff::Exponential { initial, multiplier } => (initial.as_secs_f64(), multiplier, 0.0),
        _ => unreachable!("there are three kinds"),
    };
    // After these steps the delay is the longest one, or the multiplier is too near to 1 for powers to be exact.
    for _ in 1..failures {
        if delay >= most || delay == 0.0 || multiplier == 1.0 {
            break;
        }
        if failures > 1 << 16 {
            return (delay * multiplier.powf(f64::from(failures - 1))).min(most);
        }
        delay = delay * multiplier + increment;
    }
    delay.min(most)
}

fn policy(input: &mut Unstructured<'_>) -> Result<RetryPolicy> {
    let backoff = match input.arbitrary::<u8>()? % 3 {
        0 => Backoff::Fixed { delay: duration(input)? },
        1 => Backoff::Linear { initial: duration(input)?, increment: duration(input)? },
        _ => Backoff::Exponential { initial: duration(input)?, multiplier: number(input)? },
    };
    let policy = RetryPolicy::default().backoff(backoff).max_delay(duration(input)?).jitter(number(input)?);
    Ok(policy.max_retries(input.arbitrary()?).max_unavailable(duration(input)?))
}

/// Often a value that settings allow, and sometimes any value.
fn duration(input: &mut Unstructured<'_>) -> Result<Duration> {
    Ok(match input.arbitrary::<u8>()? {
        0 => Duration::ZERO,
        1 => Duration::MAX,
        2 => Duration::new(input.arbitrary()?, input.int_in_range(0..=999_999_999)?),
        3..=40 => Duration::from_nanos(input.arbitrary()?),
        _ => Duration::from_millis(input.arbitrary::<u32>()?.into()),
    })
}

fn number(input: &mut Unstructured<'_>) -> Result<f64> {
    Ok(match input.arbitrary::<u8>()? {
        0..=9 => input.arbitrary()?,
        10..=120 => f64::from(input.arbitrary::<u16>()?) / 65535.0,
        _ => 1.0 + f64::from(input.arbitrary::<u16>()?) / 4096.0,
    })
}
