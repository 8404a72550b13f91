//! Batches in the transaction of their completions: all or nothing, and each effect once.

use std::{collections::BTreeSet, marker::PhantomData, sync::Arc};

use keylane::{
    Delivery, HandlerError, Outbox, Registration, RetryPolicy, ScheduleOptions, Signal,
    admin::{Filter, Status},
    handler::{FailureKind, TransactionalBatchHandler},
    inner::Tables,
};

use crate::{
    ledger::{Placed, dealt, placed, run_of},
    recorder::Log,
    stage::{Stage, until_count, until_empty},
    target::{Connection, Pool},
    user::User,
};

/// One record of a call: its event and its delivery.
type Called = (Placed, Delivery);

/// Writes the effects of a batch, then fails if `fails` is true for one of its records.
struct Book<T: User, F> {
    pool: Pool<T>,
    tables: Tables,
    calls: Arc<Log<Vec<Called>>>,
    fails: F,
    target: PhantomData<fn() -> T>,
}

impl<T, F> TransactionalBatchHandler<T::Db> for Book<T, F>
where
    T: User,
    F: Fn(&Called) -> bool + Send + Sync + 'static,
{
    type Event = Placed;

    async fn handle(
        &self,
        events: Vec<Placed>,
        tx: &mut Connection<T>,
        deliveries: &[&Delivery],
    ) -> Result<(), HandlerError> {
        assert_eq!(events.len(), deliveries.len());
        let mut there: BTreeSet<String> = T::effects(&self.pool, &self.tables).await.into_iter().collect();
        let call: Vec<Called> =
            events.into_iter().zip(deliveries.iter().map(|&delivery| delivery.clone())).collect();
        self.calls.push(call.clone());
        for (event, _) in &call {
            if event.number > 1 {
                let before = format!("{}/{}", event.key, event.number - 1);
                assert!(there.contains(&before), "{event:?} before {before}");
            }
            let effect = format!("{}/{}", event.key, event.number);
            T::write_effect(tx, &self.tables, &effect).await;
            assert!(there.insert(effect), "{event:?} a second time");
        }
        match call.iter().find(|called| (self.fails)(called)) {
            Some((event, _)) => Err(HandlerError::new(format!("refused {} {}", event.key, event.number))),
            None => Ok(()),
        }
    }
}

/// The size of a batch of several keys.
const SIZE: usize = 50;

struct Delivered {
    calls: Vec<Vec<Called>>,
    effects: Vec<String>,
}

async fn book<T: User, F>(stage: &Stage<T>, fails: F) -> (Book<T, F>, Arc<Log<Vec<Called>>>)
where
    F: Fn(&Called) -> bool + Send + Sync + 'static,
{
    T::make_effects(&stage.pool, &stage.tables).await;
    let calls = Arc::new(Log::default());
    let (pool, tables) = (stage.pool.clone(), stage.tables.clone());
    (Book { pool, tables, calls: Arc::clone(&calls), fails, target: PhantomData }, calls)
}

/// Schedules before the workers start, so that they find all events at once, and delivers the events.
async fn deliver<T: User, F>(stage: &Stage<T>, events: &[Placed], fails: F) -> Delivered
where
    F: Fn(&Called) -> bool + Send + Sync + 'static,
{
    let (handler, calls) = book(stage, fails).await;
    let outbox = stage.outbox([Registration::transactional_mixed_batch("books", SIZE, handler)]).await;
    stage.schedule(&outbox, events).await;
    let running = outbox.start().await.unwrap();
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
    Delivered { calls: calls.all(), effects: T::effects(&stage.pool, &stage.tables).await }
}

fn once(events: &[Placed]) -> Vec<String> {
    let mut effects: Vec<String> =
        events.iter().map(|event| format!("{}/{}", event.key, event.number)).collect();
    effects.sort();
    effects
}

pub(crate) async fn a_batch_is_committed_as_a_whole<T: User>(stage: &Stage<T>) {
    let events = dealt(10, 20);
    let Delivered { calls, effects } = deliver(stage, &events, |_| false).await;
    assert_eq!(effects, once(&events));
    assert!(calls.iter().all(|call| call.len() <= SIZE));
    assert!(calls.len() <= 20, "{} calls for 200 records", calls.len());
    assert!(calls.iter().any(|call| call.iter().any(|(event, _)| event.key != call[0].0.key)));
    let deliveries = calls.iter().flatten().map(|(_, delivery)| delivery.attempt);
    assert_eq!(deliveries.collect::<Vec<_>>(), vec![1; 200], "each record was given once");
}

/// One record fails twice: the others are delivered meanwhile, at their first attempt.
pub(crate) async fn what_fails_in_a_batch_fails_alone<T: User>(stage: &Stage<T>) {
    // Fewer records than a batch takes, so that the failing one is among others.
    let events = dealt(6, 6);
    let fails =
        |(event, delivery): &Called| (&*event.key, event.number) == ("key-4", 3) && delivery.attempt < 3;
    let Delivered { calls, effects } = deliver(stage, &events, fails).await;
    assert_eq!(effects, once(&events));
    for (event, delivery) in calls.iter().flatten() {
        let most = if (&*event.key, event.number) == ("key-4", 3) { 3 } else { 1 };
        assert!(delivery.attempt <= most, "attempt {} of {event:?}", delivery.attempt);
    }
    let among = calls[0].iter().position(|(event, _)| (&*event.key, event.number) == ("key-4", 3));
    assert!(among > Some(0), "{among:?} of the first call");
    let retries = stage.signals.all().into_iter();
    let retries = retries.filter(|signal| matches!(signal, Signal::RetryScheduled { .. }));
    assert_eq!(retries.count(), 2, "one attempt counts for each time it failed alone");
    // A record that has failed before rolls no other back.
    let again = calls.iter().filter(|call| call.iter().any(|(_, delivery)| delivery.attempt > 1));
    assert!(again.clone().all(|call| call.len() == 1), "{:?}", again.collect::<Vec<_>>());
}

pub(crate) async fn every_second_of_a_batch_fails_once<T: User>(stage: &Stage<T>) {
    let events = dealt(6, 8);
    let fails = |(event, delivery): &Called| event.number.is_multiple_of(2) && delivery.attempt == 1;
    let Delivered { effects, .. } = deliver(stage, &events, fails).await;
    assert_eq!(effects, once(&events));
}

pub(crate) async fn a_batch_of_one_key_is_a_run_of_it<T: User>(stage: &Stage<T>) {
    let (handler, calls) =
        book(stage, |(event, delivery): &Called| event.number == 7 && delivery.attempt == 1).await;
    let outbox = stage.outbox([Registration::transactional_batch("books", 8, handler)]).await;
    let events: Vec<Placed> = ["order-1", "order-2"].into_iter().flat_map(|key| run_of(key, 20)).collect();
    stage.schedule(&outbox, &events).await;
    let running = outbox.start().await.unwrap();
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, once(&events));
    let calls = calls.all();
    assert!(calls.iter().all(|call| call.len() <= 8 && call.iter().all(|(e, _)| e.key == call[0].0.key)));
    assert!(calls.iter().any(|call| call.len() == 8));
}

pub(crate) async fn what_is_spent_in_a_batch_blocks_its_key<T: User>(stage: &Stage<T>) {
    let (handler, _) = book(stage, |(event, _): &Called| (&*event.key, event.number) == ("key-2", 2)).await;
    let outbox = stage.outbox([Registration::transactional_mixed_batch("books", SIZE, handler)]).await;
    let events = dealt(3, 4);
    stage.schedule(&outbox, &events).await;
    let running = outbox.start().await.unwrap();
    until_count(&outbox, Status::Failed, 1).await;
    until_count(&outbox, Status::Held, 2).await;
    until_count(&outbox, Status::Pending, 0).await;
    let failed = outbox.admin().failed(&Filter::all(), 0, 10).await.unwrap().remove(0);
    assert_eq!((failed.attempts, failed.last_error.as_deref()), (3, Some("refused key-2 2")));
    running.shutdown().await;
    let stopped = |event: &Placed| event.key == "key-2" && event.number > 1;
    let delivered: Vec<Placed> = events.into_iter().filter(|event| !stopped(event)).collect();
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, once(&delivered));
}

async fn schedule_undecodable<T: User>(stage: &Stage<T>, outbox: &Outbox<T::Db>) {
    let mut work = T::begin(&stage.pool).await;
    let event = keylane::RawEvent::new("order.placed", "order-2", b"{}");
    outbox.schedule_all(&mut work, &run_of("order-1", 2)).await.unwrap();
    outbox.schedule_raw(&mut work, event, ScheduleOptions::new()).await.unwrap();
    outbox.schedule_all(&mut work, &[placed("order-3", 1)]).await.unwrap();
    T::commit(work).await;
}

pub(crate) async fn a_payload_that_does_not_fit_fails_alone<T: User>(stage: &Stage<T>) {
    let (handler, calls) = book(stage, |_: &Called| false).await;
    let policy = RetryPolicy::default().undecodable(keylane::handler::OnUndecodable::Fail);
    let handler = Registration::transactional_mixed_batch("books", SIZE, handler).retry(policy);
    let outbox = stage.outbox([handler]).await;
    schedule_undecodable(stage, &outbox).await;
    let running = outbox.start().await.unwrap();
    let (_, attempts, blocked) = stage.signals.failed().await;
    assert_eq!((attempts, blocked), (1, true), "{:?} is not retried", FailureKind::Decode);
    until_count(&outbox, Status::Failed, 1).await;
    until_count(&outbox, Status::Pending, 0).await;
    running.shutdown().await;
    assert_eq!(T::effects(&stage.pool, &stage.tables).await, ["order-1/1", "order-1/2", "order-3/1"]);
    assert!(calls.all().iter().flatten().all(|(event, _)| event.key != "order-2"));
}
