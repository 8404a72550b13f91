//! Handlers in the transaction of their completion: each effect once, however the call ends.

use std::{
    marker::PhantomData,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane::{
    Completed, Delivery, Failure, FallbackHandler, HandlerError, OnFailure, Outbox, Registration,
    RetryPolicy, Signal, TransactionalHandler,
    admin::{Filter, Status},
    inner::{Store, Tables},
};
use sqlx::Executor;

use crate::{
    ledger::{Cancelled, Ledger, Placed, Step, dealt, placed, run_of},
    stage::{Stage, until_count, until_empty},
    target::{Connection, PostgresTarget},
    user::User,
};

/// The end of the handler after its effect.
pub(crate) enum Then {
    Succeed,
    Fail,
    /// Fails for good.
    Refuse,
    /// The target is unreachable.
    Away,
    Panic,
    Hang,
}

/// Writes `key/number` and does what `then` says.
struct Book<T, F> {
    tables: Tables,
    ledger: Ledger,
    then: F,
    target: PhantomData<fn() -> T>,
}

impl<T, F> TransactionalHandler<T::Db> for Book<T, F>
where
    T: User,
    F: Fn(&Placed, &Delivery) -> Then + Send + Sync + 'static,
{
    type Event = Placed;

    async fn handle(
        &self,
        event: Placed,
        tx: &mut Connection<T>,
        delivery: &Delivery,
    ) -> Result<(), HandlerError> {
        self.ledger.push(Step::Began, &event, delivery);
        T::write_effect(tx, &self.tables, &format!("{}/{}", event.key, event.number)).await;
        match (self.then)(&event, delivery) {
            Then::Succeed => {}
            Then::Fail => {
                self.ledger.push(Step::Failed, &event, delivery);
                return Err(HandlerError::new("refused"));
            }
            Then::Refuse => return Err(HandlerError::permanent("refused for good")),
            Then::Away => return Err(HandlerError::unavailable(Duration::from_millis(50))),
            Then::Panic => {
                self.ledger.push(Step::Failed, &event, delivery);
                panic!("out of paper");
            }
            Then::Hang => std::future::pending().await,
        }
        self.ledger.push(Step::Done, &event, delivery);
        Ok(())
    }
}

pub(crate) async fn book<T: User, F>(stage: &Stage<T>, ledger: &Ledger, then: F) -> Registration
where
    F: Fn(&Placed, &Delivery) -> Then + Send + Sync + 'static,
{
    let (tables, ledger) = (stage.tables.clone(), ledger.clone());
    Registration::transactional("books", Book::<T, F> { tables, ledger, then, target: PhantomData })
}

/// The effects of these events, each once.
fn once(events: &[Placed]) -> Vec<String> {
    let mut effects: Vec<String> =
        events.iter().map(|event| format!("{}/{}", event.key, event.number)).collect();
    effects.sort();
    effects
}

pub(crate) async fn effect_and_completion_are_committed_together<T: User>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([book(stage, &ledger, |_, _| Then::Succeed).await]).await;
    let events = dealt(8, 4);
    stage.schedule(&outbox, &events).await;
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, once(&events));
    assert_eq!(ledger.assert_in_order(), 32);
}

pub(crate) async fn a_failed_attempt_leaves_no_effect<T: User>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let ledger = Ledger::default();
    let handler = book(stage, &ledger, |event, delivery| match (event.number, delivery.attempt) {
        (2, 1) => Then::Fail,
        (2, 2) => Then::Panic,
        _ => Then::Succeed,
    });
    let (outbox, running) = stage.run([handler.await]).await;
    let events = run_of("order-1", 5);
    stage.schedule(&outbox, &events).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, once(&events));
    assert_eq!(ledger.assert_in_order(), 5);
    assert_eq!(ledger.steps(Step::Failed).len(), 2);
}

pub(crate) async fn an_attempt_that_takes_too_long_leaves_no_effect<T: User>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let ledger = Ledger::default();
    let hangs = |_: &Placed, delivery: &Delivery| match delivery.attempt {
        1 => Then::Hang,
        _ => Then::Succeed,
    };
    let handler = book(stage, &ledger, hangs).await.timeout(Duration::from_millis(150));
    let (outbox, running) = stage.run([handler]).await;
    stage.schedule(&outbox, &[placed("order-1", 1), placed("order-2", 1)]).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, ["order-1/1", "order-2/1"]);
    // On a busy machine, a later attempt may take too long, too.
    let began = ledger.steps(Step::Began);
    let (first, later): (Vec<_>, Vec<_>) = began.iter().partition(|entry| entry.delivery.attempt == 1);
    assert!(first.len() == 2 && later.len() >= 2, "{began:?}");
}

/// An uncounted attempt stops the lane as any other failure does. The completed record is kept: if its row
/// were deleted, the next fetch of the stops would notice.
pub(crate) async fn what_is_held_behind_an_unavailable_target_goes_on<T: User>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let ledger = Ledger::default();
    let tries = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&tries);
    let handler = book(stage, &ledger, move |event, _| match event.number {
        1 if count.fetch_add(1, SeqCst) < 2 => Then::Away,
        _ => Then::Succeed,
    });
    let mut config = stage.config.clone();
    config.retention.completed = Completed::Keep;
    let outbox = stage.builder().await.config(config).handler(handler.await).build().await.unwrap();
    let events = run_of("order-1", 5);
    stage.schedule(&outbox, &events).await;
    let running = outbox.start().await.unwrap();
    until_count(&outbox, Status::Completed, 5).await;
    running.shutdown().await;
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, once(&events));
    assert_eq!(tries.load(SeqCst), 3);
}

/// A crash must not leave the effects of a record whose predecessor comes again.
pub(crate) async fn a_transaction_waits_for_the_end_of_the_record_before<T: User>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let (ledger, seen) = (Ledger::default(), Arc::new(AtomicU32::new(0)));
    let handler = Successor { books: book_of(stage, &ledger), store: stage.store(), seen: Arc::clone(&seen) };
    let handler = Registration::transactional("books", handler).on_failure(OnFailure::Continue);
    let outbox = stage.outbox([handler]).await;
    stage.schedule(&outbox, &run_of("order-1", 6)).await;
    let running = outbox.start().await.unwrap();
    until_count(&outbox, Status::Failed, 3).await;
    until_count(&outbox, Status::Pending, 0).await;
    running.shutdown().await;
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, ["order-1/2", "order-1/4", "order-1/6"]);
    assert_eq!(seen.load(SeqCst), 3, "each found all failures before it in the database");
}

/// Refuses odd numbers, and counts the even numbers that find all earlier failures in the database.
struct Successor<T: User> {
    books: Book<T, fn(&Placed, &Delivery) -> Then>,
    store: Arc<dyn Store>,
    seen: Arc<AtomicU32>,
}

fn book_of<T: User>(stage: &Stage<T>, ledger: &Ledger) -> Book<T, fn(&Placed, &Delivery) -> Then> {
    let then: fn(&Placed, &Delivery) -> Then =
        |event, _| if event.number % 2 == 1 { Then::Refuse } else { Then::Succeed };
    Book { tables: stage.tables.clone(), ledger: ledger.clone(), then, target: PhantomData }
}

impl<T: User> TransactionalHandler<T::Db> for Successor<T> {
    type Event = Placed;

    async fn handle(
        &self,
        event: Placed,
        tx: &mut Connection<T>,
        delivery: &Delivery,
    ) -> Result<(), HandlerError> {
        let failed = self.store.failed(&Filter::all(), 0, 10).await?.len();
        if event.number.is_multiple_of(2) && failed == event.number as usize / 2 {
            self.seen.fetch_add(1, SeqCst);
        }
        self.books.handle(event, tx, delivery).await
    }
}

struct Sorry(Ledger);

impl FallbackHandler for Sorry {
    type Event = Placed;

    async fn handle(&self, event: Placed, failure: &Failure) -> Result<(), HandlerError> {
        self.0.push(Step::Done, &event, &failure.delivery);
        Ok(())
    }
}

pub(crate) async fn what_is_spent_goes_to_the_fallback_without_an_effect<T: User>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let (ledger, taken) = (Ledger::default(), Ledger::default());
    let handler = book(stage, &ledger, |event, _| match event.number {
        1 => Then::Fail,
        _ => Then::Succeed,
    });
    let handlers = [handler.await, Registration::fallback("books", Sorry(taken.clone()))];
    let (outbox, running) = stage.run(handlers).await;
    stage.schedule(&outbox, &run_of("order-1", 2)).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(taken.done_of("order-1"), [1]);
    assert_eq!(ledger.steps(Step::Failed).len(), 3);
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, ["order-1/2"]);
}

/// The workers are dropped when the handler has written its effect and not returned.
pub(crate) async fn an_abort_in_the_middle_leaves_one_effect<T: User>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let (first, second) = (Ledger::default(), Ledger::default());
    let (outbox, running) = stage.run([book(stage, &first, |_, _| Then::Hang).await]).await;
    let events = [placed("order-1", 1), placed("order-1", 2)];
    stage.schedule(&outbox, &events).await;
    first.until(Step::Began, None, 1).await;
    let dead = running.instance();
    drop(running);
    // The others would detect the silence; an eviction is quicker.
    assert!(stage.store().evict(dead, None).await.unwrap());
    let (again, running) = stage.run([book(stage, &second, |_, _| Then::Succeed).await]).await;
    until_empty(&again).await;
    running.shutdown().await;
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, once(&events));
    assert!(
        second.steps(Step::Done).iter().all(|entry| entry.delivery.attempt == 1),
        "an attempt was burned"
    );
}

/// The instance is evicted while the handler works: its writes are refused with the completion.
pub(crate) async fn an_evicted_handler_leaves_no_second_effect<T: User>(stage: &Stage<T>) {
    T::make_effects(&stage.pool, &stage.tables).await;
    let ledger = Ledger::default();
    let store = stage.store();
    let (told, mut began) = tokio::sync::mpsc::unbounded_channel();
    let handler = book(stage, &ledger, move |_, _| {
        let _ = told.send(());
        Then::Succeed
    });
    let (outbox, running) = stage.run([handler.await]).await;
    let events = dealt(4, 10);
    stage.schedule(&outbox, &events).await;
    for _ in 0..3 {
        crate::recorder::bounded("a call", began.recv()).await.unwrap();
        let me = crate::recorder::eventually("an instance to evict", async || {
            let me = running.instance();
            store.evict(me, None).await.unwrap().then_some(me)
        })
        .await;
        let evicted = |signal: &Signal| matches!(signal, Signal::Evicted { instance } if *instance == me);
        stage.signals.first("the eviction", |signal| evicted(signal).then_some(())).await;
    }
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, once(&events));
}

struct Chain<T: User>(Arc<OnceLock<Outbox<T::Db>>>);

impl<T: User> TransactionalHandler<T::Db> for Chain<T> {
    type Event = Cancelled;

    async fn handle(
        &self,
        event: Cancelled,
        tx: &mut Connection<T>,
        delivery: &Delivery,
    ) -> Result<(), HandlerError> {
        let outbox = self.0.get().ok_or_else(|| HandlerError::new("too early"))?;
        outbox.schedule(tx, &placed(&event.key, delivery.attempt)).await?;
        if delivery.attempt < 3 { Err(HandlerError::new("not yet")) } else { Ok(()) }
    }
}

pub(crate) async fn what_a_handler_schedules_is_an_effect_too<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let place = Arc::new(OnceLock::new());
    let chain = Registration::transactional("chain", Chain::<T>(Arc::clone(&place)));
    let (outbox, running) = stage.run([chain, ledger.keeper("bookkeeper")]).await;
    assert!(place.set(outbox.clone()).is_ok());
    let event = Cancelled { key: "order-1".to_owned() };
    outbox.transaction(async |tx| outbox.schedule(tx, &event).await).await.unwrap();
    ledger.until_done(1).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    // Only the event that the third attempt scheduled was committed.
    assert_eq!(ledger.done_of("order-1"), [3]);
}

/// A statement that fails breaks the whole transaction on PostgreSQL, even if the handler says Ok.
struct Swallow;

impl TransactionalHandler<sqlx::Postgres> for Swallow {
    type Event = Placed;

    async fn handle(&self, _: Placed, tx: &mut sqlx::PgConnection, _: &Delivery) -> Result<(), HandlerError> {
        drop(tx.execute("SELECT 1 / 0").await);
        Ok(())
    }
}

/// A constraint that is checked at the commit.
struct Defer(Tables);

impl TransactionalHandler<sqlx::Postgres> for Defer {
    type Event = Placed;

    async fn handle(&self, _: Placed, tx: &mut sqlx::PgConnection, _: &Delivery) -> Result<(), HandlerError> {
        let insert = format!("INSERT INTO {}unique VALUES (1), (1)", crate::user::qualifier(&self.0));
        tx.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(insert))).await?;
        Ok(())
    }
}

/// The record fails as often as its policy allows, and then for good. Returns the last error.
pub(crate) async fn fails_like_any_other<T: User>(stage: &Stage<T>, handler: Registration) -> String {
    let handler = handler.retry(RetryPolicy::fixed(Duration::from_millis(20)).max_retries(1));
    let (outbox, running) = stage.run([handler]).await;
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    until_count(&outbox, Status::Failed, 1).await;
    running.shutdown().await;
    let failed = outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap().remove(0);
    assert_eq!(failed.attempts, 2);
    failed.last_error.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_swallowed_error_is_a_failed_attempt() {
    let stage = Stage::<PostgresTarget>::open().await.unwrap();
    let error = fails_like_any_other(&stage, Registration::transactional("books", Swallow)).await;
    assert!(error.contains("aborted"), "{error}");
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_constraint_that_fails_at_the_commit_is_a_failed_attempt() {
    let stage = Stage::<PostgresTarget>::open().await.unwrap();
    stage.execute("CREATE TABLE {outbox}unique (id int, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)").await;
    let handler = Registration::transactional("books", Defer(stage.tables.clone()));
    let error = fails_like_any_other(&stage, handler).await;
    assert!(error.contains("23505"), "{error}");
    stage.erase().await;
}
