//! One attempt: the call, its limits, and what is written about its end.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use super::flight::{Flight, Outcome};
use crate::{
    clock::Clock,
    handler::{Context, Entry, Failure, HandlerError, States, guarded},
    ownership::Permit,
    record::{Change, OnFailure, Record},
    rules::{
        lease,
        lifecycle::{self, LaneRules, Step},
    },
    telemetry::{Observers, Signal},
};

/// The longest error text that is stored, in bytes.
const ERROR_LIMIT_BYTES: usize = 1000;

/// What attempts share.
pub(super) struct Surroundings {
    pub(super) states: States,
    pub(super) observers: Observers,
    pub(super) clock: Clock,
    /// How long others wait for a partition, less the write of the last outcome.
    pub(super) longest_hold: Duration,
}

/// Judges a finished attempt: what is written, after the fallback handler if it has come to that. Every
/// call of a fallback is the user's code as well: it begins under a good lease only.
pub(super) async fn judge(
    flight: &mut Flight<'_>,
    lane: usize,
    entry: &Entry,
    record: &Record,
    result: Result<(), HandlerError>,
    around: &Surroundings,
) -> Outcome {
    let stops_lane = flight.next(lane).is_some_and(|item| item.stops_lane);
    let failures = record.failures() + u32::from(result.is_err());
    let fault = result.as_ref().err().map(HandlerError::fault);
    // Only a retry has a jitter.
    let roll = fault.map_or(0.0, |_| roll(record.delivery.id, failures));
    let mut step = lifecycle::after_handler(fault, failures, &entry.retry, entry.fallback.is_some(), roll);
    let mut error = result.as_ref().err().map(|error| error.text(ERROR_LIMIT_BYTES)).unwrap_or_default();
    if let (Step::Fallback, Err(cause)) = (step, &result) {
        let took = around.clock.now().saturating_sub(flight.started());
        let fits = lease::fallback_fits(took, entry.timeout, around.longest_hold);
        let may_start = |permit: &Permit| if fits { permit.may_go_on() } else { permit.may_start() };
        if !flight.next(lane).is_some_and(|item| may_start(&item.permit)) {
            // The next owner calls the handler once more, and then the fallback.
            return Outcome::Gone;
        }
        let signal = Signal::FallbackTaken { record: record.delivery.id, lane: record.lane() };
        around.observers.emit(signal);
        let fallback = Box::pin(fall_back(entry, record, failures, cause, took, around));
        match flight.wait(fallback).await {
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
    let change = lifecycle::change(step, stops_lane, entry.lane_rules, &error);
    Outcome::Write(change.unwrap_or(Change::Complete))
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
    guarded(entry.timeout, || fallback.call(Context::new(record, &around.states), &failure)).await?
}

fn report(record: &Record, attempts: u32, step: Step, error: &str, entry: &Entry, around: &Surroundings) {
    let id = record.delivery.id;
    let lane = || record.lane();
    match step {
        Step::Retry { delay } => {
            around.observers.emit(Signal::RetryScheduled { record: id, lane: lane(), attempts, delay });
        }
        Step::Fail => around.observers.emit(failed(record, attempts, error, entry.lane_rules)),
        Step::Complete | Step::Fallback => {}
    }
}

/// What is told of a record that has failed for good.
pub(super) fn failed(record: &Record, attempts: u32, error: &str, rules: LaneRules) -> Signal {
    Signal::RecordFailed {
        record: record.delivery.id,
        event_id: record.delivery.event_id,
        trace_id: record.delivery.trace_id().map(str::to_owned),
        lane: record.lane(),
        attempts,
        error: error.to_owned(),
        blocked: rules.on_failure == OnFailure::Block,
    }
}

/// The jitter of an attempt, 0 to 1: drawn from the record and the attempt, so that it is the same
/// wherever it is computed and needs no generator.
pub(crate) fn roll(id: i64, failures: u32) -> f64 {
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
}
