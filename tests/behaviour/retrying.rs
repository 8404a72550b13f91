//! Failures: when a record is tried again, when it has failed, and what becomes of its key.

use std::{fmt, time::Duration};

use keylane::{
    ClassifiedError, HandlerError, OnFailure, Registration, RetryPolicy, ScheduleOptions, Signal,
    admin::{Filter, Status},
    handler::OnUndecodable,
};

use crate::{
    ledger::{Ledger, Placed, Step, placed, run_of, typed},
    recorder::eventually,
    stage::{Stage, until_count, until_empty},
    user::User,
};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Fails the event with this number for `attempts` attempts.
pub(crate) fn failing(
    ledger: &Ledger,
    number: u32,
    attempts: u32,
    error: fn() -> HandlerError,
) -> Registration {
    ledger.handler("bookkeeper", move |event, delivery| {
        if event.number == number && delivery.attempt <= attempts { Err(error()) } else { Ok(()) }
    })
}

pub(crate) fn refused() -> HandlerError {
    HandlerError::new("refused")
}

pub(crate) async fn delays_grow_and_are_kept<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let policy = RetryPolicy::exponential().initial_delay(millis(100)).max_retries(3);
    let (outbox, running) = stage.run([failing(&ledger, 1, 3, refused).retry(policy)]).await;
    stage.schedule(&outbox, &run_of("order-1", 2)).await;
    ledger.until_done(2).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    let began: Vec<_> = ledger.steps(Step::Began).iter().map(|entry| entry.at).collect();
    let failed: Vec<_> = ledger.steps(Step::Failed).iter().map(|entry| entry.at).collect();
    let waited: Vec<Duration> = (0..3).map(|n| began[n + 1] - failed[n]).collect();
    for (waited, least) in waited.iter().zip([100, 200, 400]) {
        assert!(*waited >= millis(least), "{waited:?}");
    }
    let told = stage.signals.picked(|signal| match signal {
        Signal::RetryScheduled { attempts, delay, .. } => Some((*attempts, *delay)),
        _ => None,
    });
    assert_eq!(told, [(1, millis(100)), (2, millis(200)), (3, millis(400))]);
    let attempts: Vec<u32> = ledger.steps(Step::Began).iter().map(|entry| entry.delivery.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 1]);
    ledger.assert_in_order();
}

pub(crate) async fn a_spent_record_fails_and_blocks_its_key_only<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([failing(&ledger, 2, u32::MAX, refused)]).await;
    let mut events = run_of("order-1", 5);
    events.extend([placed("order-2", 1), placed("order-3", 1)]);
    stage.schedule(&outbox, &events).await;
    let (record, attempts, blocked) = stage.signals.failed().await;
    assert_eq!((attempts, blocked), (3, true), "the first attempt and two retries");
    ledger.until_done(3).await;
    until_count(&outbox, Status::Held, 3).await;
    until_count(&outbox, Status::Failed, 1).await;
    let failed = outbox.admin().failed(&Filter::all(), 0, 10).await.unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].id, failed[0].attempts), (record, 3));
    assert_eq!(failed[0].last_error.as_deref(), Some("refused"));
    assert_eq!(failed[0].lane.key, "order-1");
    let counts = outbox.admin().counts().await.unwrap();
    assert_eq!((counts.of(Status::Failed), counts.of(Status::Pending)), (1, 0));
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [1]);
    assert_eq!(ledger.steps(Step::Failed).len(), 3);
}

pub(crate) async fn on_failure_continue_lets_the_key_go_on<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let mut config = stage.config.clone();
    config.delivery.on_failure = Some(OnFailure::Continue);
    let builder = stage.builder().await.config(config);
    let outbox = builder.handler(failing(&ledger, 2, u32::MAX, refused)).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    stage.schedule(&outbox, &run_of("order-1", 4)).await;
    ledger.until_done(3).await;
    until_count(&outbox, Status::Pending, 0).await;
    let (_, attempts, blocked) = stage.signals.failed().await;
    assert_eq!((attempts, blocked), (3, false));
    assert!(outbox.admin().stopped_lanes(&Filter::all(), 0, 10).await.unwrap().is_empty());
    running.shutdown().await;
    // Until its retries were spent, no record overtook it.
    let numbers: Vec<u32> = ledger.steps(Step::Began).iter().map(|entry| entry.event.number).collect();
    assert_eq!(numbers, [1, 2, 2, 2, 3, 4]);
}

pub(crate) async fn without_a_stop_later_records_pass<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let handler = failing(&ledger, 1, 2, refused)
        .stop_on_first_failure(false)
        .retry(RetryPolicy::fixed(millis(300)).max_retries(2));
    let (outbox, running) = stage.run([handler]).await;
    stage.schedule(&outbox, &run_of("order-1", 4)).await;
    ledger.until_done(4).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [2, 3, 4, 1]);
    let stopped = stage.signals.count(|signal| matches!(signal, Signal::RecordFailed { .. }));
    assert_eq!(stopped, 0);
}

pub(crate) async fn without_a_stop_a_spent_record_blocks_nothing<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let handler =
        failing(&ledger, 1, u32::MAX, refused).stop_on_first_failure(false).retry(RetryPolicy::never());
    let (outbox, running) = stage.run([handler]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    ledger.until_done(2).await;
    until_count(&outbox, Status::Pending, 0).await;
    assert!(!stage.signals.failed().await.2);
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [2, 3]);
}

pub(crate) async fn a_handlers_own_rules_are_stronger<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let own =
        failing(&ledger, 1, u32::MAX, refused).on_failure(OnFailure::Continue).retry(RetryPolicy::never());
    let (outbox, running) = stage.run([own]).await;
    stage.schedule(&outbox, &run_of("order-1", 2)).await;
    ledger.until_done(1).await;
    let (_, attempts, blocked) = stage.signals.failed().await;
    assert_eq!((attempts, blocked), (1, false));
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [2]);
}

pub(crate) async fn a_permanent_error_is_not_retried<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) =
        stage.run([failing(&ledger, 1, u32::MAX, || HandlerError::permanent("no such account"))]).await;
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    let (_, attempts, blocked) = stage.signals.failed().await;
    assert_eq!((attempts, blocked), (1, true));
    until_count(&outbox, Status::Failed, 1).await;
    running.shutdown().await;
    assert_eq!(ledger.steps(Step::Began).len(), 1);
}

/// An error with a class.
#[derive(Debug)]
struct BankError(&'static str);

impl fmt::Display for BankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bank says {}", self.0)
    }
}

impl std::error::Error for BankError {}

impl ClassifiedError for BankError {
    fn class(&self) -> Option<&'static str> {
        Some(self.0)
    }

    fn is_permanent(&self) -> bool {
        self.0 == "stolen"
    }

    fn retry_after(&self) -> Option<Duration> {
        (self.0 == "busy").then_some(millis(250))
    }
}

/// Number 1 times out, 2 is refused, 3 has no class, 4 is stolen. Returns the number of attempts of each.
async fn tries<T: User>(stage: &Stage<T>, policy: RetryPolicy) -> Vec<usize> {
    let ledger = Ledger::default();
    let handler = ledger.handler("bookkeeper", |event, _| match event.number {
        1 => Err(HandlerError::classified(BankError("timeout"))),
        2 => Err(HandlerError::classified(BankError("refused"))),
        3 => Err(HandlerError::new("something else")),
        4 => Err(HandlerError::classified(BankError("stolen"))),
        _ => Ok(()),
    });
    let (outbox, running) = stage.run([handler.retry(policy)]).await;
    let events: Vec<Placed> = (1..=5).map(|number| placed(&format!("order-{number}"), number)).collect();
    stage.schedule(&outbox, &events).await;
    until_count(&outbox, Status::Failed, 4).await;
    running.shutdown().await;
    let began = ledger.steps(Step::Began);
    (1..=4).map(|number| began.iter().filter(|entry| entry.event.number == number).count()).collect()
}

pub(crate) async fn only_listed_classes_are_retried<T: User>(stage: &Stage<T>) {
    let policy = RetryPolicy::fixed(millis(10)).max_retries(2).retry_on(["timeout", "stolen"]);
    assert_eq!(tries(stage, policy).await, [3, 1, 1, 1]);
}

pub(crate) async fn excluded_classes_are_not_retried<T: User>(stage: &Stage<T>) {
    let policy = RetryPolicy::fixed(millis(10)).max_retries(2).never_on(["refused"]);
    assert_eq!(tries(stage, policy).await, [3, 1, 3, 1]);
}

pub(crate) async fn an_exclusion_is_stronger_than_a_list<T: User>(stage: &Stage<T>) {
    let policy =
        RetryPolicy::fixed(millis(10)).max_retries(2).retry_on(["timeout", "refused"]).never_on(["refused"]);
    assert_eq!(tries(stage, policy).await, [3, 1, 1, 1]);
}

pub(crate) async fn a_wish_to_wait_is_kept_up_to_the_longest_delay<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let handler = ledger.handler("bookkeeper", |event, delivery| match (event.number, delivery.attempt) {
        (1, 1) => Err(HandlerError::classified(BankError("busy"))),
        (2, 1) => Err(HandlerError::new("come back in a year").retry_after(Duration::from_secs(31_536_000))),
        _ => Ok(()),
    });
    let policy = RetryPolicy::fixed(millis(1)).max_delay(millis(400)).max_retries(1);
    let (outbox, running) = stage.run([handler.retry(policy)]).await;
    stage.schedule(&outbox, &[placed("order-1", 1), placed("order-2", 2)]).await;
    ledger.until_done(2).await;
    running.shutdown().await;
    for (number, least) in [(1, millis(250)), (2, millis(400))] {
        let at = |step| {
            let entry = ledger.steps(step).into_iter().rfind(|entry| entry.event.number == number);
            entry.map(|entry| entry.at).unwrap()
        };
        let waited = at(Step::Began) - at(Step::Failed);
        assert!(waited >= least, "{number} waited {waited:?}");
    }
}

pub(crate) async fn a_panic_is_a_failure_with_its_text<T: User>(stage: &Stage<T>) {
    let panics = typed("bookkeeper", |event: Placed, _| async move {
        panic!("order {} has no price", event.number);
    });
    let (outbox, running) = stage.run([panics.retry(RetryPolicy::never())]).await;
    stage.schedule(&outbox, &[placed("order-1", 7)]).await;
    until_count(&outbox, Status::Failed, 1).await;
    let failed = outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap().remove(0);
    assert_eq!(failed.last_error.as_deref(), Some("panicked: order 7 has no price"));
    // The workers have survived the panic.
    stage.schedule(&outbox, &[placed("order-2", 8)]).await;
    until_count(&outbox, Status::Failed, 2).await;
    assert!(running.shutdown().await.graceful);
}

pub(crate) async fn a_call_that_takes_too_long_is_a_failure<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let kept = ledger.clone();
    let hangs = typed("bookkeeper", move |event: Placed, delivery| {
        let ledger = kept.clone();
        async move {
            ledger.push(Step::Began, &event, &delivery);
            if ledger.steps(Step::Began).len() == 1 {
                std::future::pending::<()>().await;
            }
            ledger.push(Step::Done, &event, &delivery);
            Ok(())
        }
    });
    // The first failure is the last, so that its error stays visible.
    let once = hangs.timeout(millis(100)).retry(RetryPolicy::never());
    let (outbox, running) = stage.run([once]).await;
    stage.schedule(&outbox, &run_of("order-1", 1)).await;
    ledger.until(Step::Began, None, 1).await;
    let stopped = eventually("the error of the first attempt", async || {
        outbox.admin().stopped_lanes(&Filter::all(), 0, 1).await.unwrap().pop()
    });
    let stopped = stopped.await;
    assert_eq!(stopped.last_error.as_deref(), Some("no result within 100 ms"));
    assert!(outbox.admin().retry(stopped.record).await.unwrap());
    ledger.until_done(1).await;
    running.shutdown().await;
    assert_eq!(ledger.steps(Step::Began).len(), 2);
}

pub(crate) async fn a_long_error_is_cut<T: User>(stage: &Stage<T>) {
    // Four bytes per character, so that the limit falls into the middle of one.
    let long = || HandlerError::permanent(format!("xx{}", "\u{1f4a3}".repeat(5000)));
    let (outbox, running) = stage.run([failing(&Ledger::default(), 1, 9, long)]).await;
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    until_count(&outbox, Status::Failed, 1).await;
    let error = outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap().remove(0).last_error.unwrap();
    assert_eq!(error, format!("xx{}", "\u{1f4a3}".repeat(249)), "998 bytes, at a boundary of characters");
    running.shutdown().await;
}

pub(crate) async fn an_error_is_kept_with_its_causes_in_one_line<T: User>(stage: &Stage<T>) {
    let nested = || {
        let cause = std::io::Error::other(BankError("closed\0 for\n today"));
        HandlerError::permanent(std::io::Error::other(cause))
    };
    let (outbox, running) = stage.run([failing(&Ledger::default(), 1, 9, nested)]).await;
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    until_count(&outbox, Status::Failed, 1).await;
    let error = outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap().remove(0).last_error.unwrap();
    assert!(error.starts_with("the bank says closed  for  today"), "{error:?}");
    assert!(!error.contains(char::is_control), "{error:?}");
    running.shutdown().await;
}

pub(crate) async fn a_payload_that_does_not_fit_fails_at_once<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let policy = RetryPolicy::default().undecodable(OnUndecodable::Fail);
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper").retry(policy)]).await;
    let raw = |key: &str, content_type: &str, payload: &[u8]| {
        keylane::RawEvent::new("order.placed", key, payload).content_type(content_type)
    };
    let mut work = T::begin(&stage.pool).await;
    for event in [
        raw("order-1", "application/json", br#"{"key":"order-1"}"#),
        raw("order-2", "application/json", b"\xff\xfe"),
        raw("order-3", "application/protobuf", br#"{"key":"order-3","number":1}"#),
    ] {
        outbox.schedule_raw(&mut work, event, ScheduleOptions::new()).await.unwrap();
    }
    T::commit(work).await;
    outbox.wake();
    until_count(&outbox, Status::Failed, 3).await;
    let failed = outbox.admin().failed(&Filter::all(), 0, 10).await.unwrap();
    assert!(failed.iter().all(|failed| failed.attempts == 1), "{failed:?}");
    let errors: Vec<String> = failed.into_iter().filter_map(|failed| failed.last_error).collect();
    assert!(errors[0].contains("line 1, column 17"), "{errors:?}");
    assert!(errors[1].contains("invalid JSON"), "{errors:?}");
    assert!(errors[2].contains("application/protobuf"), "{errors:?}");
    assert!(ledger.all().is_empty());
    running.shutdown().await;
}
