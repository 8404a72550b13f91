//! One attempt: the call, its limits, and the change that its end leads to.

use std::{sync::Arc, time::Duration};

use super::{call::fall_back, context::ExecContext, flight::Flight};
use crate::{
    delivery::{outcome::Outcome, roll::roll, signals::failed},
    handler::{Entry, Failure, HandlerError},
    record::{Change, Record},
    rules::{
        lease,
        lifecycle::{self, Step},
    },
    telemetry::Signal,
};

/// The longest error text that is stored, in bytes.
const ERROR_LIMIT_BYTES: usize = 1000;

/// Decides what to write after an attempt. If the attempt leads to the fallback handler, calls the fallback
/// first. The fallback is the user's code, so its call needs a valid lease.
pub(super) async fn decide(
    flight: &mut Flight<'_>,
    lane: usize,
    entry: &Entry,
    record: &Record,
    result: Result<(), HandlerError>,
    context: &ExecContext,
) -> Outcome {
    let stops_lane = flight.next(lane).is_some_and(|item| item.stops_lane);
    let fault = result.as_ref().err().map(HandlerError::fault);
    let counted = fault.is_some_and(|fault| !fault.expired);
    let failures = record.failures() + u32::from(counted);
    // Only a retry has jitter.
    let roll = fault.map_or(0.0, |_| roll(record.delivery.id, failures));
    let waited = context.targets.waited(record.delivery.id, || context.clock.now());
    let mut unavailable = fault.is_some_and(|fault| fault.unavailable);
    let fallback = entry.fallback.as_deref();
    let mut step = lifecycle::after_handler(fault, failures, waited, &entry.retry, fallback.is_some(), roll);
    let mut error = result.as_ref().err().map(|error| error.text(ERROR_LIMIT_BYTES)).unwrap_or_default();
    if let (Step::Fallback, Err(cause), Some(fallback)) = (step, &result, fallback) {
        let may_start = may_fall_back(flight, lane, entry, context);
        let Some(failure) = may_start.map(|took| failure(record, failures, cause, took, entry)) else {
            // The next owner calls the handler again, and then the fallback.
            return Outcome::Lost;
        };
        let signal = Signal::FallbackTaken { record: record.delivery.id, lane: record.lane() };
        context.observers.emit(signal);
        // Boxed, because a run has the place for this call, too, and most runs never make it.
        let called = Box::pin(fall_back(fallback, record, failure, (entry, context)));
        let called = flight.wait(called).await;
        let fault = called.as_ref().err().map(HandlerError::fault);
        unavailable = fault.is_some_and(|fault| fault.unavailable);
        step = lifecycle::after_fallback(fault, waited, &entry.retry, counted);
        if let Err(failed) = &called {
            error = format!("{error}; fallback: {}", failed.text(ERROR_LIMIT_BYTES / 2));
            error.truncate(error.floor_char_boundary(ERROR_LIMIT_BYTES));
        }
    }
    report(record, failures, step, &error, entry, context);
    track_wait(record, step, unavailable, entry, context);
    // `Step::Fallback` has no change, and the block above has replaced it.
    let change = lifecycle::change(step, stops_lane, entry.lane_rules, &error);
    Outcome::of(change.unwrap_or(Change::Complete))
}

/// How long the handler took, if its fallback may start now: the lease holds, and others that want the
/// partition do not wait too long.
fn may_fall_back(flight: &Flight<'_>, lane: usize, entry: &Entry, context: &ExecContext) -> Option<Duration> {
    let took = context.clock.now().saturating_sub(flight.started());
    let fits = lease::fallback_fits(took, entry.timeout, context.longest_hold);
    let permit = &flight.next(lane)?.permit;
    let may_start = if fits { permit.may_go_on() } else { permit.may_start() };
    may_start.then_some(took)
}

/// Tracks whether the record waits for the target of its handler. Failures that count keep the wait, so that
/// it does not start again with the next failure.
fn track_wait(record: &Record, step: Step, unavailable: bool, entry: &Entry, context: &ExecContext) {
    let id = record.delivery.id;
    let told = match step {
        Step::Wait { delay } | Step::Retry { delay } if unavailable => {
            let handler = &record.delivery.handler;
            let now = context.clock.now();
            context.targets.wait(id, handler, (now, now + delay), entry.retry.unavailable_alarm)
        }
        _ => context.targets.end(id, || context.clock.now()),
    };
    if let Some(signal) = told {
        context.observers.emit(signal);
    }
}

/// If the next record of a lane has expired, ends it as failed. Returns whether it did.
pub(super) async fn end_expired(
    flight: &mut Flight<'_>,
    entry: &Entry,
    lane: usize,
    context: &ExecContext,
) -> bool {
    let Some(item) = flight.next(lane).filter(|item| item.expires.is_some()) else { return false };
    let Some(started) = item.permit.starts_at() else {
        flight.stop(lane);
        return false;
    };
    if !item.has_expired(started) {
        return false;
    }
    let record = Arc::clone(&item.record);
    flight.begin(lane, 1, started);
    let outcome = decide(flight, lane, entry, &record, Err(HandlerError::expired()), context).await;
    flight.end(lane, outcome);
    true
}

/// The argument of the fallback handler.
fn failure(record: &Record, attempts: u32, cause: &HandlerError, took: Duration, entry: &Entry) -> Failure {
    Failure {
        delivery: record.delivery.clone(),
        attempts,
        error: cause.to_string(),
        chain: cause.chain(),
        class: cause.fault().class.map(str::to_owned),
        kind: cause.kind(),
        retries_exhausted: attempts > entry.retry.max_retries && !cause.fault().permanent,
        since_scheduled: record.delivery.age + took,
        last_attempt_took: took,
    }
}

fn report(record: &Record, attempts: u32, step: Step, error: &str, entry: &Entry, context: &ExecContext) {
    let id = record.delivery.id;
    let lane = || record.lane();
    match step {
        Step::Retry { delay } => {
            context.observers.emit(Signal::RetryScheduled { record: id, lane: lane(), attempts, delay });
        }
        Step::Wait { delay } => {
            context.observers.emit(Signal::TargetUnavailable { record: id, lane: lane(), delay });
        }
        Step::Leave => {
            let (record_type, error) = (record.delivery.record_type.to_string(), error.to_owned());
            context.observers.emit(Signal::Undecodable { record: id, lane: lane(), record_type, error });
        }
        Step::Fail { .. } => context.observers.emit(failed(record, attempts, error, entry.lane_rules)),
        Step::Complete | Step::Fallback => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    };

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::{
        delivery::fixtures,
        handler::{BoxFuture, Context, FallbackCall},
        instance::Generation,
        ownership::Ownership,
        partition::{Partition, PartitionSet},
        telemetry::{Observer, Observers},
    };

    struct Counts(Arc<AtomicU32>);

    impl FallbackCall for Counts {
        fn call<'a>(&'a self, _: Context<'a>, _: &'a Failure) -> BoxFuture<'a, Result<(), HandlerError>> {
            Box::pin(async move {
                self.0.fetch_add(1, SeqCst);
                Ok(())
            })
        }
    }

    /// The handler fails for good after `took` seconds, then `meanwhile` runs. Returns whether the fallback
    /// was called, and the outcome of the record.
    async fn fallback_after(took: u64, meanwhile: impl Fn(&Ownership)) -> (bool, Outcome) {
        let (ownership, calls) = (fixtures::owning_all(), Arc::new(AtomicU32::new(0)));
        let mut entry = fixtures::entry();
        Arc::get_mut(&mut entry).unwrap().fallback = Some(Arc::new(Counts(Arc::clone(&calls))));
        let (done, context) = (unbounded_channel().0, fixtures::context(&ownership));
        let mut run = fixtures::run(&ownership, 1);
        let mut flight = Flight::new(&mut run, None, &done);
        flight.begin(0, 1, context.clock.now());
        tokio::time::advance(Duration::from_secs(took)).await;
        ownership.renew(ownership.clock().now(), Duration::from_secs(30));
        meanwhile(&ownership);
        let failed = Err(HandlerError::permanent("no"));
        let record = fixtures::record(1, "a");
        let outcome = decide(&mut flight, 0, &entry, &record, failed, &context).await;
        (calls.load(SeqCst) == 1, outcome)
    }

    fn drain(ownership: &Ownership) {
        ownership.drain(PartitionSet::from_iter([Partition::of("a")]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fallback_begins_under_a_good_lease_only() {
        assert!(matches!(fallback_after(1, |_| {}).await, (true, Outcome::Completed)));
        assert!(matches!(fallback_after(1, Ownership::lose).await, (false, Outcome::Lost)));
        let moved = |ownership: &Ownership| {
            ownership.grant(&[(Partition::of("a"), Generation(9))]);
        };
        assert!(matches!(fallback_after(1, moved).await, (false, Outcome::Lost)));
    }

    /// The timeout of the fallback is 1 s, and the longest hold of a partition is 55 s.
    #[tokio::test(start_paused = true)]
    async fn a_fallback_goes_with_its_handler_unless_others_would_wait_too_long() {
        assert!(matches!(fallback_after(54, drain).await, (true, Outcome::Completed)));
        assert!(matches!(fallback_after(55, drain).await, (false, Outcome::Lost)));
        assert!(matches!(fallback_after(55, |_| {}).await, (true, Outcome::Completed)), "nobody waits");
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_has_expired_is_ended_without_a_call() {
        let (ownership, done) = (fixtures::owning_all(), unbounded_channel().0);
        let (context, entry) = (fixtures::context(&ownership), fixtures::entry());
        let now = context.clock.now();
        for (expires, ends) in [(None, false), (Some(now + Duration::from_secs(1)), false), (Some(now), true)]
        {
            let mut run = fixtures::run(&ownership, 2);
            run.lanes[0].items[0].0.expires = expires;
            let mut flight = Flight::new(&mut run, None, &done);
            assert_eq!(end_expired(&mut flight, &entry, 0, &context).await, ends, "{expires:?}");
            match &run.lanes[0].items[0].1 {
                Outcome::Changed(change) if ends => {
                    assert!(matches!(&**change, Change::Fail { counted: false, .. }), "{change:?}");
                }
                outcome => assert!(!ends && matches!(outcome, Outcome::Untried), "{outcome:?}"),
            }
        }
    }

    #[test]
    fn a_fallback_is_told_whether_the_retries_were_spent() {
        let (record, entry) = (fixtures::record(1, "a"), fixtures::entry());
        let most = entry.retry.max_retries;
        let told = |attempts, cause| failure(&record, attempts, &cause, Duration::from_secs(3), &entry);
        let spent = |attempts| told(attempts, HandlerError::new("no")).retries_exhausted;
        assert_eq!([most - 1, most, most + 1, most + 2].map(spent), [false, false, true, true]);
        let failure = told(most + 1, HandlerError::permanent("no"));
        assert!(!failure.retries_exhausted, "it was not tried again");
        assert_eq!((failure.attempts, failure.since_scheduled), (most + 1, Duration::from_secs(3)));
    }

    /// The kinds of the signals.
    #[derive(Default)]
    struct SignalLog(Mutex<Vec<&'static str>>);

    impl Observer for SignalLog {
        fn on(&self, signal: &Signal) {
            self.0.lock().unwrap().push(match signal {
                Signal::RetryScheduled { .. } => "retry",
                Signal::RecordFailed { .. } => "failed",
                Signal::TargetUnavailable { .. } => "unavailable",
                Signal::TargetAway { .. } => "away",
                Signal::TargetBack { .. } => "back",
                _ => "other",
            });
        }
    }

    /// What an attempt leads to and tells, if the record has failed `failures` times before.
    async fn ends_after(failures: u32, end: Result<(), HandlerError>) -> (Outcome, Vec<&'static str>) {
        let (ownership, done) = (fixtures::owning_all(), unbounded_channel().0);
        let log = Arc::new(SignalLog::default());
        let observers = Observers::new(vec![Arc::<SignalLog>::clone(&log)]);
        let context = ExecContext { observers, ..fixtures::context(&ownership) };
        let entry = fixtures::entry();
        let mut run = fixtures::run(&ownership, 1);
        let mut flight = Flight::new(&mut run, None, &done);
        flight.begin(0, 1, context.clock.now());
        let mut record = fixtures::record(1, "a");
        record.delivery.attempt = failures + 1;
        let outcome = decide(&mut flight, 0, &entry, &record, end, &context).await;
        let told = std::mem::take(&mut *log.0.lock().unwrap());
        (outcome, told)
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_fails_with_the_attempt_after_its_last_retry() {
        let most = fixtures::entry().retry.max_retries;
        let refused = || Err(HandlerError::new("no"));
        for failures in [0, most - 1] {
            let (outcome, told) = ends_after(failures, refused()).await;
            let Outcome::Changed(change) = outcome else { panic!("{outcome:?}") };
            assert!(matches!(*change, Change::Retry { counted: true, .. }), "{failures}: {change:?}");
            assert_eq!(told, ["retry"]);
        }
        let (outcome, told) = ends_after(most, refused()).await;
        let Outcome::Changed(change) = outcome else { panic!("{outcome:?}") };
        assert!(matches!(*change, Change::Fail { counted: true, .. }), "{change:?}");
        assert_eq!(told, ["failed"]);
        let (outcome, told) = ends_after(most, Ok(())).await;
        assert!(matches!(outcome, Outcome::Completed) && told.is_empty());
    }

    /// What each call of one record leads to and tells, if its target is away from second 0 on and back at the
    /// last one. The calls are at these seconds.
    async fn while_away(age: Duration, limit: u64, calls: &[u64]) -> Vec<(&'static str, Vec<&'static str>)> {
        let (ownership, done) = (fixtures::owning_all(), unbounded_channel().0);
        let log = Arc::new(SignalLog::default());
        let observers = Observers::new(vec![Arc::<SignalLog>::clone(&log)]);
        let context = ExecContext { observers, ..fixtures::context(&ownership) };
        let mut entry = fixtures::entry();
        let policy = &mut Arc::get_mut(&mut entry).unwrap().retry;
        policy.max_unavailable = Duration::from_secs(limit);
        policy.unavailable_alarm = Duration::from_secs(5);
        let (began, mut led_to) = (context.clock.now(), Vec::new());
        for (call, at) in calls.iter().enumerate() {
            tokio::time::advance(began + Duration::from_secs(*at) - context.clock.now()).await;
            let mut run = fixtures::run(&ownership, 1);
            let mut flight = Flight::new(&mut run, None, &done);
            flight.begin(0, 1, context.clock.now());
            let mut record = fixtures::record(1, "a");
            record.delivery.age = age;
            let is_back = call + 1 == calls.len();
            let end = if is_back { Ok(()) } else { Err(HandlerError::unavailable(Duration::from_secs(1))) };
            let outcome = decide(&mut flight, 0, &entry, &record, end, &context).await;
            let outcome = match outcome {
                Outcome::Completed => "completed",
                Outcome::Changed(change) => match *change {
                    Change::Retry { counted: false, .. } => "waits",
                    Change::Retry { counted: true, .. } => "counts",
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            };
            led_to.push((outcome, std::mem::take(&mut *log.0.lock().unwrap())));
        }
        led_to
    }

    /// It had been held behind another record for two days, say.
    #[tokio::test(start_paused = true)]
    async fn an_old_record_waits_for_its_target_as_long_as_a_new_one() {
        let two_days = Duration::from_secs(48 * 3600);
        for age in [Duration::ZERO, two_days] {
            let led_to = while_away(age, 3, &[0, 1, 2, 3, 4, 5]).await;
            let outcomes: Vec<_> = led_to.iter().map(|(outcome, _)| *outcome).collect();
            // A failure that counts does not restart the wait.
            assert_eq!(outcomes, ["waits", "waits", "waits", "counts", "counts", "completed"], "{age:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_raises_an_alarm_and_its_end_is_told() {
        let led_to = while_away(Duration::ZERO, 3600, &[0, 4, 5, 6, 10, 11]).await;
        let told: Vec<_> = led_to.into_iter().map(|(_, told)| told).collect();
        let [quiet, alarm] = [vec!["unavailable"], vec!["unavailable", "away"]];
        assert_eq!(told, [quiet.clone(), quiet.clone(), alarm.clone(), quiet, alarm, vec!["back"]]);
    }
}
