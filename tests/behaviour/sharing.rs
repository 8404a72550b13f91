//! Handlers that share an instance: waiting transactional handlers, of which few run at once, do not delay
//! the others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane::{
    Delivery, HandlerError, Registration, Signal, TransactionalHandler,
    handler::Rate,
    memory::{Memory, MemoryConnection},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use crate::{
    leases::{Paused, s},
    ledger::{Cancelled, Ledger, Placed, Step, placed, typed},
    stage::until_empty,
};

/// Lists its calls, each of which takes so long.
pub(crate) struct Slow(pub(crate) Ledger, pub(crate) Duration);

impl TransactionalHandler<Memory> for Slow {
    type Event = Placed;

    async fn handle(
        &self,
        event: Placed,
        _: &mut MemoryConnection,
        delivery: &Delivery,
    ) -> Result<(), HandlerError> {
        self.0.push(Step::Began, &event, delivery);
        sleep(self.1).await;
        self.0.push(Step::Done, &event, delivery);
        Ok(())
    }
}

/// Runs that wait for their turn hold no partition: a joining instance gets its half once the two running
/// calls have ended, and no instance is evicted.
#[tokio::test(start_paused = true)]
async fn a_transactional_backlog_is_handed_over_at_once() {
    let mut stage = Paused::new();
    stage.config.delivery.handler_timeout = s(10);
    let ledger = Ledger::default();
    let slow = || Registration::transactional("books", Slow(ledger.clone(), s(5)));
    let (outbox, first) = stage.run([slow()]).await;
    let events: Vec<Placed> = (0..60).map(|key| placed(&format!("key-{key}"), 1)).collect();
    stage.schedule(&outbox, &events).await;
    ledger.until(Step::Began, None, 2).await;
    let (_, second) = stage.run([slow()]).await;
    let granted = |signal: &Signal| matches!(signal, Signal::PartitionsGranted { partitions } if partitions.len() >= 100);
    stage.signals.at_least(2, "half of the partitions", granted).await;
    let begun = ledger.steps(Step::Began).len();
    assert!(begun <= 8, "{begun} had begun when the second had its half");
    // Sixty records, four at a time, five seconds each.
    sleep(s(120)).await;
    until_empty(&outbox).await;
    first.shutdown().await;
    second.shutdown().await;
    assert_eq!(ledger.steps(Step::Done).len(), 60);
    let evicted = |signal: &Signal| matches!(signal, Signal::Evicted { .. } | Signal::PeerEvicted { .. });
    assert_eq!(stage.signals.count(evicted), 0);
}

/// Waits for a permit in each call.
struct Waiting(Arc<Semaphore>);

impl TransactionalHandler<Memory> for Waiting {
    type Event = Cancelled;

    async fn handle(&self, _: Cancelled, _: &mut MemoryConnection, _: &Delivery) -> Result<(), HandlerError> {
        drop(self.0.acquire().await?);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_transactional_backlog_leaves_calls_to_the_others() {
    let mut stage = Paused::new();
    stage.config.delivery.concurrency = 4;
    let (ledger, go_on) = (Ledger::default(), Arc::new(Semaphore::new(0)));
    let waiting = Registration::transactional("books", Waiting(Arc::clone(&go_on)));
    let (outbox, running) = stage.run([waiting, ledger.keeper("bookkeeper")]).await;
    let backlog: Vec<Cancelled> = (0..40).map(|key| Cancelled { key: format!("key-{key}") }).collect();
    outbox.transaction(async |tx| outbox.schedule_all(tx, &backlog).await).await.unwrap();
    sleep(s(2)).await;
    for number in 1..=5 {
        stage.schedule(&outbox, &[placed("order-1", number)]).await;
        tokio::time::timeout(Duration::from_secs(5), ledger.until_done(number as usize)).await.unwrap();
    }
    go_on.add_permits(2);
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 5);
}

/// Each run of a transactional handler waits for its turn at the database, a few at a time: a backlog of many keys
/// would fill the memory.
#[tokio::test(start_paused = true)]
async fn a_transactional_backlog_leaves_memory_to_the_others() {
    let mut stage = Paused::new();
    (stage.config.delivery.batch_size, stage.config.delivery.max_in_flight) = (50, 200);
    let (ledger, go_on) = (Ledger::default(), Arc::new(Semaphore::new(0)));
    let waiting = Registration::transactional("books", Waiting(Arc::clone(&go_on)));
    let outbox = stage.outbox([waiting, ledger.keeper("bookkeeper")]).await;
    let backlog: Vec<Cancelled> =
        (0..1_000).map(|number| Cancelled { key: format!("key-{}", number % 300) }).collect();
    outbox.transaction(async |tx| outbox.schedule_all(tx, &backlog).await).await.unwrap();
    let running = outbox.start().await.unwrap();
    for number in 1..=3 {
        let others: Vec<Placed> = (0..300).map(|key| placed(&format!("key-{key}"), number)).collect();
        stage.schedule(&outbox, &others).await;
        let done = ledger.until_done(number as usize * 300);
        tokio::time::timeout(Duration::from_secs(60), done).await.unwrap();
    }
    go_on.add_permits(backlog.len());
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 900);
}

fn many(keys: usize) -> Vec<Placed> {
    (0..keys).map(|key| placed(&format!("key-{key}"), 1)).collect()
}

/// A handler with a limit has at most that many calls at once; another handler uses the rest.
#[tokio::test(start_paused = true)]
async fn a_handler_is_called_so_many_times_at_once() {
    let mut stage = Paused::new();
    stage.config.delivery.concurrency = 8;
    let (ledger, at_once, most) =
        (Ledger::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, peak) = (Arc::clone(&at_once), Arc::clone(&most));
    let slow = typed("slow", move |_, _| {
        let (counted, peak) = (Arc::clone(&counted), Arc::clone(&peak));
        async move {
            peak.fetch_max(counted.fetch_add(1, SeqCst) + 1, SeqCst);
            sleep(s(1)).await;
            counted.fetch_sub(1, SeqCst);
            Ok(())
        }
    });
    let (outbox, running) = stage.run([slow.concurrency(3), ledger.keeper("bookkeeper")]).await;
    let start = Instant::now();
    stage.schedule(&outbox, &many(40)).await;
    ledger.until_done(40).await;
    assert!(start.elapsed() < s(1), "nobody waits for the slow one");
    until_empty(&outbox).await;
    assert_eq!(most.load(SeqCst), 3);
    let took = start.elapsed();
    assert!(took >= s(13) && took <= s(18), "40 calls of 1 s, three at a time, took {took:?}");
    running.shutdown().await;
}

/// A handler with a rate is called evenly, however many records wait for it. Waiting records do not delay
/// others.
#[tokio::test(start_paused = true)]
async fn a_handler_is_called_so_often() {
    let mut stage = Paused::new();
    stage.config.delivery.concurrency = 2;
    let (ledger, paced) = (Ledger::default(), Ledger::default());
    let handlers = [paced.keeper("paced").rate(Rate::per_second(10)), ledger.keeper("bookkeeper")];
    let (outbox, running) = stage.run(handlers).await;
    let start = Instant::now();
    let mut events = many(20);
    events.extend((1..=10).map(|number| placed("one", number)));
    stage.schedule(&outbox, &events).await;
    ledger.until_done(30).await;
    assert!(start.elapsed() < Duration::from_millis(100), "nobody waits for the paced one");
    paced.until_done(30).await;
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(2_900) && took < Duration::from_millis(3_300),
        "30 calls took {took:?}"
    );
    until_empty(&outbox).await;
    assert_eq!(paced.assert_in_order(), 30);
    running.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_nothing_is_refused() {
    let stage = Paused::new();
    let ledger = Ledger::default();
    let none = ledger.keeper("none").concurrency(0);
    let never = ledger.keeper("never").rate(Rate::new(0, Duration::ZERO));
    let error = stage.builder().handlers([none, never]).build().await.err().unwrap().to_string();
    assert!(error.contains("concurrency is 0: it would never be called; set it to at least 1"), "{error}");
    assert!(error.contains("rate is 0 calls in 0ns, but both must be more than zero"), "{error}");
}
