//! Deadlines: an expired record is not called, and ends at its place in its key.

use std::{
    marker::PhantomData,
    time::{Duration, SystemTime},
};

use keylane::{
    Delivery, HandlerError, OnFailure, Outbox, Registration, RetryPolicy, ScheduleOptions, Signal,
    TransactionalHandler,
    admin::{Filter, Status},
    handler::{FailureKind, TransactionalBatchHandler},
    inner::Tables,
};

use crate::{
    batches::{all_done, batch, numbers},
    fallbacks::fallback,
    leases::{Paused, s},
    ledger::{Ledger, Placed, Step, placed, run_of},
    recorder::bounded,
    retrying::{failing, refused},
    stage::{Stage, until_count, until_empty},
    target::Connection,
    user::User,
};

/// Numbers 1 to 5 of a key. The third and the fourth have expired when they are scheduled.
async fn outbox_with_five<T: User>(
    stage: &Stage<T>,
    handlers: impl IntoIterator<Item = Registration>,
) -> Outbox<T::Db> {
    let outbox = stage.outbox(handlers).await;
    let mut work = T::begin(&stage.pool).await;
    for event in run_of("order-1", 5) {
        let options = ScheduleOptions::new();
        let options = match event.number {
            3 => options.expires_after(Duration::ZERO),
            4 => options.expires_at(SystemTime::now() - Duration::from_secs(3600)),
            _ => options.expires_after(Duration::from_secs(3600)),
        };
        outbox.schedule_with(&mut work, &event, options).await.unwrap();
    }
    T::commit(work).await;
    outbox
}

/// The numbers with which `handler` was called, in order.
fn called(ledger: &Ledger, handler: &str) -> Vec<u32> {
    let of_handler = ledger.steps(Step::Began).into_iter().filter(|entry| entry.delivery.handler == handler);
    of_handler.map(|entry| entry.event.number).collect()
}

pub(crate) async fn what_has_expired_is_not_called<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (takes, mut received) = fallback("own");
    let handlers = [
        ledger.keeper("bookkeeper"),
        Registration::fallback("bookkeeper", takes),
        ledger.keeper("mail").on_failure(OnFailure::Continue),
    ];
    let outbox = outbox_with_five(stage, handlers).await;
    let running = outbox.start().await.unwrap();
    for number in [3, 4] {
        let (_, event, failure) = bounded("the fallback", received.recv()).await.unwrap();
        assert_eq!(event, placed("order-1", number));
        assert_eq!((failure.class.as_deref(), failure.kind), (Some("expired"), FailureKind::Expired));
        assert_eq!((failure.attempts, failure.retries_exhausted), (0, false), "nothing was tried");
        assert_eq!(failure.delivery.expires_in, Some(Duration::ZERO));
    }
    ledger.until_done(6).await;
    until_count(&outbox, Status::Failed, 2).await;
    for failed in outbox.admin().failed(&Filter::all(), 0, 10).await.unwrap() {
        assert_eq!((&*failed.lane.handler, failed.attempts), ("mail", 0));
        assert!(failed.last_error.as_deref().is_some_and(|error| error.starts_with("expired: ")));
    }
    let (_, attempts, blocked) = stage.signals.failed().await;
    assert_eq!((attempts, blocked), (0, false));
    running.shutdown().await;
    for handler in ["bookkeeper", "mail"] {
        assert_eq!(called(&ledger, handler), [1, 2, 5]);
    }
    assert!(received.try_recv().is_err(), "it was called twice");
}

pub(crate) async fn what_has_expired_blocks_its_key_until_a_person_retries_it<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let outbox = outbox_with_five(stage, [ledger.keeper("bookkeeper")]).await;
    let running = outbox.start().await.unwrap();
    for number in [3, 4] {
        until_count(&outbox, Status::Failed, 1).await;
        until_count(&outbox, Status::Held, 5 - u64::from(number)).await;
        assert_eq!(called(&ledger, "bookkeeper"), (1..number).collect::<Vec<_>>());
        let failed = outbox.admin().failed(&Filter::all(), 0, 10).await.unwrap().remove(0);
        outbox.admin().retry(failed.id).await.unwrap();
        ledger.until_done(number as usize).await;
    }
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(called(&ledger, "bookkeeper"), [1, 2, 3, 4, 5]);
}

/// The first of two events expires after a deadline. The handler always fails it. A busy machine calls late, so
/// the deadline is doubled until the first event was called this many times before it.
async fn until_expired<T: User>(stage: &Stage<T>, policy: RetryPolicy, calls: usize) -> Ledger {
    let mut deadline = Duration::from_millis(700);
    loop {
        let ledger = until_expired_after(stage, policy.clone(), deadline).await;
        let of_first = called(&ledger, "bookkeeper").iter().filter(|number| **number == 1).count();
        if of_first >= calls || deadline > s(10) {
            return ledger;
        }
        deadline *= 2;
    }
}

async fn until_expired_after<T: User>(stage: &Stage<T>, policy: RetryPolicy, deadline: Duration) -> Ledger {
    let ledger = Ledger::default();
    let handler = failing(&ledger, 1, u32::MAX, refused).retry(policy).on_failure(OnFailure::Continue);
    let (outbox, running) = stage.run([handler]).await;
    let mut work = T::begin(&stage.pool).await;
    let options = ScheduleOptions::new().expires_after(deadline);
    outbox.schedule_with(&mut work, &placed("order-1", 1), options).await.unwrap();
    outbox.schedule(&mut work, &placed("order-1", 2)).await.unwrap();
    let over = tokio::time::Instant::now() + deadline;
    T::commit(work).await;
    outbox.wake();
    ledger.until_done(1).await;
    until_count(&outbox, Status::Failed, 1).await;
    let attempts = called(&ledger, "bookkeeper").iter().filter(|number| **number == 1).count();
    let failed = outbox.admin().failed(&Filter::all(), 0, 10).await.unwrap().remove(0);
    assert_eq!(failed.attempts as usize, attempts, "the expiry is no attempt");
    outbox.admin().discard(failed.id).await.unwrap();
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [2]);
    // SQLite's clock has steps, and a busy machine may stop the task between its last check and the call.
    for entry in ledger.steps(Step::Began).iter().filter(|entry| entry.event.number == 1) {
        assert!(entry.at <= over + s(1), "it was called {:?} late", entry.at - over);
    }
    ledger
}

pub(crate) async fn a_deadline_ends_retries<T: User>(stage: &Stage<T>) {
    let policy = RetryPolicy::fixed(Duration::from_millis(30)).max_retries(u32::MAX);
    let ledger = until_expired(stage, policy, 2).await;
    assert!(called(&ledger, "bookkeeper").len() > 2, "it was tried until then");
}

pub(crate) async fn a_deadline_ends_a_pause_between_retries<T: User>(stage: &Stage<T>) {
    // The test does not wait that long for the end of the record.
    let ledger = until_expired(stage, RetryPolicy::fixed(s(3600)).max_delay(s(3600)), 1).await;
    assert_eq!(called(&ledger, "bookkeeper"), [1, 2]);
}

/// Runs the five events through two handlers that go on after a failure and one that stops.
async fn run_five_to_the_end<T: User>(stage: &Stage<T>, handlers: [Registration; 3]) {
    let outbox = outbox_with_five(stage, handlers).await;
    let running = outbox.start().await.unwrap();
    // Two records of each handler that goes on, and the first of the other handler.
    until_count(&outbox, Status::Failed, 5).await;
    until_count(&outbox, Status::Held, 2).await;
    until_count(&outbox, Status::Pending, 0).await;
    running.shutdown().await;
}

pub(crate) async fn what_expires_in_a_batch_leaves_it_at_its_place<T: User>(stage: &Stage<T>) {
    let (goes_on, calls) = batch(all_done);
    let (mixed, mixed_calls) = batch(all_done);
    let (stops, stopped_calls) = batch(all_done);
    let handlers = [
        Registration::batch("goes_on", 5, goes_on).on_failure(OnFailure::Continue),
        Registration::mixed_batch("mixed", 5, mixed).on_failure(OnFailure::Continue),
        Registration::batch("stops", 5, stops),
    ];
    run_five_to_the_end(stage, handlers).await;
    for calls in [calls, mixed_calls] {
        assert_eq!(numbers(&calls), [vec![(1, 1), (2, 1)], vec![(5, 1)]]);
    }
    assert_eq!(numbers(&stopped_calls), [[(1, 1), (2, 1)]]);
}

/// Writes the handler and the events of a call as one effect.
struct Book<T: User> {
    tables: Tables,
    target: PhantomData<fn() -> T>,
}

impl<T: User> Book<T> {
    async fn book(&self, events: &[Placed], tx: &mut Connection<T>, delivery: &Delivery) {
        let numbers: Vec<String> = events.iter().map(|event| event.number.to_string()).collect();
        T::write_effect(tx, &self.tables, &format!("{} {}", delivery.handler, numbers.join(" "))).await;
    }
}

impl<T: User> TransactionalHandler<T::Db> for Book<T> {
    type Event = Placed;

    async fn handle(
        &self,
        event: Placed,
        tx: &mut Connection<T>,
        delivery: &Delivery,
    ) -> Result<(), HandlerError> {
        self.book(&[event], tx, delivery).await;
        Ok(())
    }
}

impl<T: User> TransactionalBatchHandler<T::Db> for Book<T> {
    type Event = Placed;

    async fn handle(
        &self,
        events: Vec<Placed>,
        tx: &mut Connection<T>,
        deliveries: &[&Delivery],
    ) -> Result<(), HandlerError> {
        self.book(&events, tx, deliveries[0]).await;
        Ok(())
    }
}

pub(crate) async fn what_expires_in_a_transactional_run_leaves_it_at_its_place<T: User>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let book = || Book::<T> { tables: stage.tables.clone(), target: PhantomData };
    let handlers = [
        Registration::transactional::<T::Db, _>("one", book()).on_failure(OnFailure::Continue),
        Registration::transactional_batch::<T::Db, _>("many", 5, book()).on_failure(OnFailure::Continue),
        Registration::transactional_batch::<T::Db, _>("stops", 5, book()),
    ];
    run_five_to_the_end(stage, handlers).await;
    let effects = T::effects(&stage.pool, &stage.tables).await;
    assert_eq!(effects, ["many 1 2", "many 5", "one 1", "one 2", "one 5", "stops 1 2"]);
}

/// One retry per ten seconds, and one minute until the deadline: six calls, and at the minute the record
/// expires.
#[tokio::test(start_paused = true)]
async fn memory_retries_end_at_the_deadline() {
    let (stage, ledger) = (Paused::new(), Ledger::default());
    let policy = RetryPolicy::fixed(s(10)).max_delay(s(10)).max_retries(u32::MAX);
    let handler = failing(&ledger, 1, u32::MAX, refused).retry(policy);
    let (outbox, running) = stage.run([handler]).await;
    let scheduled = tokio::time::Instant::now();
    let (event, options) = (placed("order-1", 1), ScheduleOptions::new().expires_after(s(60)));
    outbox.transaction(async |tx| outbox.schedule_with(tx, &event, options).await).await.unwrap();
    let failed = || stage.signals.count(|signal| matches!(signal, Signal::RecordFailed { .. }));
    tokio::time::sleep(s(59)).await;
    assert_eq!(failed(), 0);
    tokio::time::sleep(s(2)).await;
    assert_eq!(failed(), 1, "at the first poll after its deadline");
    let began: Vec<u64> =
        ledger.steps(Step::Began).iter().map(|entry| (entry.at - scheduled).as_secs() / 10).collect();
    assert_eq!(began, [0, 1, 2, 3, 4, 5]);
    running.shutdown().await;
}
