//! One attempt: the call, its limits, and what is written about its end.

use std::{future::Future, panic::AssertUnwindSafe, pin::pin, sync::Arc, task::Poll, time::Duration};

use futures::FutureExt;
use xxhash_rust::xxh3::xxh3_64;

use super::transaction::GuardPool;
use crate::{
    clock::Clock,
    handler::{Context, Entry, Failure, HandlerError, States},
    record::{Change, Record},
    rules::lifecycle::{self, Step},
    telemetry::{Observers, Signal},
};

/// The longest error text that is stored, in bytes.
const ERROR_LIMIT_BYTES: usize = 1000;

/// What attempts share.
pub(super) struct Surroundings {
    pub(super) states: States,
    pub(super) observers: Observers,
    pub(super) clock: Clock,
    pub(super) guards: Arc<GuardPool>,
}

/// Runs a call within its time; a panic is a failure with the panic's text.
pub(super) async fn guarded<T>(
    timeout: Duration,
    call: impl Future<Output = T> + Send,
) -> Result<T, HandlerError> {
    let mut call = pin!(AssertUnwindSafe(call).catch_unwind());
    // A call that never waits needs no timer.
    let returned = match futures::poll!(call.as_mut()) {
        Poll::Ready(returned) => Ok(returned),
        Poll::Pending => Box::pin(tokio::time::timeout(timeout, call)).await,
    };
    match returned {
        Ok(Ok(returned)) => Ok(returned),
        Ok(Err(panic)) => Err(HandlerError::panicked(&*panic)),
        Err(_) => Err(HandlerError::timed_out(timeout)),
    }
}

/// Judges a finished attempt: what is written, after the fallback handler if it has come to that.
pub(super) async fn judge(
    entry: &Entry,
    record: &Record,
    stops_lane: bool,
    result: Result<(), HandlerError>,
    started: Duration,
    around: &Surroundings,
) -> Change {
    let failures = record.failures() + u32::from(result.is_err());
    let fault = result.as_ref().err().map(HandlerError::fault);
    // Only a retry has a jitter.
    let roll = fault.map_or(0.0, |_| roll(record.delivery.id, failures));
    let mut step = lifecycle::after_handler(fault, failures, &entry.retry, entry.fallback.is_some(), roll);
    let mut error = result.as_ref().err().map(|error| error.text(ERROR_LIMIT_BYTES)).unwrap_or_default();
    if let (Step::Fallback, Err(cause)) = (step, &result) {
        let lane = record.lane();
        around.observers.emit(Signal::FallbackTaken { record: record.delivery.id, lane });
        let took = around.clock.now().saturating_sub(started);
        match Box::pin(fall_back(entry, record, failures, cause, took, around)).await {
            Ok(()) => step = lifecycle::after_fallback(true),
            Err(failed) => {
                step = lifecycle::after_fallback(false);
                error = format!("{error}; fallback: {}", failed.text(ERROR_LIMIT_BYTES / 2));
                error.truncate(error.floor_char_boundary(ERROR_LIMIT_BYTES));
            }
        }
    }
    report(record, failures, step, &error, entry, around);
    // A fallback is no end, and it was dealt with above.
    lifecycle::change(step, stops_lane, entry.lane_rules, &error).unwrap_or(Change::Complete)
}

async fn fall_back(
    entry: &Entry,
    record: &Record,
    attempts: u32,
    cause: &HandlerError,
    took: Duration,
    around: &Surroundings,
) -> Result<(), HandlerError> {
    let Some(fallback) = &entry.fallback else { return Ok(()) };
    let failure = Failure {
        delivery: record.delivery.clone(),
        attempts,
        error: cause.to_string(),
        chain: cause.chain(),
        class: cause.fault().class.map(str::to_owned),
        kind: cause.kind(),
        retries_exhausted: attempts > entry.retry.max_retries && !cause.fault().permanent,
        since_scheduled: record.delivery.age + took,
        last_attempt_took: took,
    };
    guarded(entry.timeout, fallback.call(Context::new(record, &around.states), &failure)).await?
}

fn report(record: &Record, attempts: u32, step: Step, error: &str, entry: &Entry, around: &Surroundings) {
    let id = record.delivery.id;
    let lane = || record.lane();
    match step {
        Step::Retry { delay } => {
            around.observers.emit(Signal::RetryScheduled { record: id, lane: lane(), attempts, delay });
        }
        Step::Fail => {
            let blocked = entry.lane_rules.after_failure == crate::record::AfterFailure::Block;
            around.observers.emit(Signal::RecordFailed {
                record: id,
                event_id: record.delivery.event_id,
                trace_id: record.delivery.trace_id().map(str::to_owned),
                lane: lane(),
                attempts,
                error: error.to_owned(),
                blocked,
            });
        }
        Step::Complete | Step::Fallback => {}
    }
}

/// The jitter of an attempt, 0 to 1: drawn from the record and the attempt, so that it is the same
/// wherever it is computed and needs no generator.
pub(super) fn roll(id: i64, failures: u32) -> f64 {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..].copy_from_slice(&failures.to_le_bytes());
    (xxh3_64(&bytes) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rolls_spread_over_the_unit_interval() {
        let rolls: Vec<f64> = (1..=1000).map(|id| roll(id, 1)).collect();
        assert!(rolls.iter().all(|roll| (0.0..1.0).contains(roll)));
        let mean = rolls.iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "mean {mean}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_fails_at_its_timeout() {
        let hang = guarded(Duration::from_secs(3), std::future::pending::<()>()).await;
        assert_eq!(hang.unwrap_err().kind(), crate::handler::FailureKind::Timeout);
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_with_its_text() {
        let panicking = async { panic!("number {}", 7) };
        let error = guarded::<()>(Duration::from_secs(1), panicking).await.unwrap_err();
        assert_eq!(error.to_string(), "panicked: number 7");
    }
}
