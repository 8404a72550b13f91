//! Order within a key, with failures, restarts and joins in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use keylane::{Delivery, Handler, HandlerError, Registration, RetryPolicy, Signal, partition::Partition};
use tokio::sync::watch;

use crate::{
    ledger::{Cancelled, Ledger, Step, dealt, placed, run_of, typed},
    stage::{Stage, until_empty},
    user::User,
};

/// One in twenty, by key and number: the same ones in every run.
fn is_unlucky(key: &str, number: u32) -> bool {
    key.bytes().map(u32::from).sum::<u32>().wrapping_mul(31).wrapping_add(number * 7) % 20 == 0
}

fn unlucky_once(ledger: &Ledger) -> keylane::Registration {
    let unlucky = |event: &crate::ledger::Placed, delivery: &keylane::Delivery| {
        let fails = delivery.attempt == 1 && is_unlucky(&event.key, event.number);
        if fails { Err(HandlerError::new("out of luck")) } else { Ok(()) }
    };
    let quickly = RetryPolicy::fixed(Duration::from_millis(20)).max_retries(3);
    ledger.handler("bookkeeper", unlucky).retry(quickly)
}

pub(crate) async fn nothing_overtakes_what_fails_once<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([unlucky_once(&ledger)]).await;
    for part in dealt(40, 50).chunks(250) {
        stage.schedule(&outbox, part).await;
    }
    ledger.until_done(2000).await;
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
    assert_eq!(ledger.assert_in_order(), 2000);
    let failed = ledger.steps(Step::Failed).len();
    assert!((50..=200).contains(&failed), "{failed} of 2000 failed once");
}

pub(crate) async fn order_holds_across_restarts<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let outbox = stage.outbox([unlucky_once(&ledger)]).await;
    stage.schedule(&outbox, &dealt(40, 30)).await;
    for stop_at in [200, 600, 900, 1200] {
        let running = outbox.start().await.unwrap();
        ledger.until_done(stop_at).await;
        let report = running.shutdown().await;
        assert!(report.graceful, "{report:?}");
    }
    until_empty(&outbox).await;
    assert_eq!(ledger.assert_in_order(), 1200);
}

pub(crate) async fn instances_that_join_and_leave_lose_and_repeat_nothing<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (first, running) = stage.run([unlucky_once(&ledger)]).await;
    let second = stage.outbox([unlucky_once(&ledger)]).await;
    let events = dealt(40, 50);
    let (early, late) = events.split_at(1000);
    stage.schedule(&first, early).await;
    ledger.until_done(100).await;
    let joined = second.start().await.unwrap();
    // The second instance takes its half while the first works.
    let me = joined.instance();
    stage
        .signals
        .first("the second to be there", |signal| match signal {
            Signal::Joined { instance } if *instance == me => Some(()),
            _ => None,
        })
        .await;
    let halves = |signal: &Signal| match signal {
        Signal::PartitionsGranted { partitions } if partitions.len() < 256 => Some(partitions.len()),
        _ => None,
    };
    stage.signals.first("partitions of the second", halves).await;
    stage.schedule(&first, late).await;
    ledger.until_done(1100).await;
    let report = running.shutdown().await;
    assert!(report.graceful, "{report:?}");
    second.wake();
    ledger.until_done(2000).await;
    until_empty(&second).await;
    assert!(joined.shutdown().await.graceful);
    assert_eq!(ledger.assert_in_order(), 2000);
    let generations: BTreeSet<i64> =
        ledger.steps(Step::Done).iter().map(|entry| entry.delivery.generation.0).collect();
    assert!(generations.len() >= 2, "nothing was handed over: {generations:?}");
}

pub(crate) async fn a_key_takes_up_where_another_instance_has_stopped<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (first, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    stage.schedule(&first, &run_of("order-1", 3)).await;
    ledger.until_done(3).await;
    let (second, joined) = stage.run([ledger.keeper("bookkeeper")]).await;
    assert!(running.shutdown().await.graceful);
    stage.schedule(&second, &[placed("order-1", 4), placed("order-1", 5)]).await;
    ledger.until_done(5).await;
    until_empty(&second).await;
    joined.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 5);
    let generations: Vec<i64> =
        ledger.steps(Step::Done).iter().map(|entry| entry.delivery.generation.0).collect();
    assert!(generations.is_sorted() && generations[4] > generations[0], "{generations:?}");
}

/// More records than the memory may hold wait for one slow call.
pub(crate) async fn a_slow_key_does_not_starve_the_others<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (open, gate) = watch::channel(false);
    let kept = ledger.clone();
    let slow = typed("bookkeeper", move |event, delivery| {
        let (ledger, mut gate) = (kept.clone(), gate.clone());
        async move {
            ledger.push(Step::Began, &event, &delivery);
            if event.key == "slow" {
                gate.wait_for(|open| *open).await?;
            }
            ledger.push(Step::Done, &event, &delivery);
            Ok(())
        }
    });
    let mut config = stage.config.clone();
    config.delivery.batch_size = 50;
    config.delivery.max_in_flight = 200;
    let outbox = stage.builder().await.config(config).handler(slow).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    let elsewhere = |key: &String| Partition::of(key) != Partition::of("slow");
    let quick: Vec<String> = (0..).map(|n| format!("quick-{n}")).filter(elsewhere).take(20).collect();
    stage.schedule(&outbox, &run_of("slow", 500)).await;
    ledger.until(Step::Began, Some("slow"), 1).await;
    for number in 1..=3 {
        let others: Vec<_> = quick.iter().map(|key| placed(key, number)).collect();
        stage.schedule(&outbox, &others).await;
        ledger.until_done(number as usize * 20).await;
    }
    assert!(ledger.done_of("slow").is_empty());
    open.send(true).unwrap();
    ledger.until_done(560).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 560);
}

/// Waits before each call until the gate is open.
struct Gated {
    gate: watch::Receiver<bool>,
    /// The ids of the calls per key.
    called: Arc<Mutex<BTreeMap<String, Vec<i64>>>>,
}

impl Handler for Gated {
    type Event = Cancelled;

    async fn handle(&self, event: Cancelled, delivery: &Delivery) -> Result<(), HandlerError> {
        self.gate.clone().wait_for(|open| *open).await?;
        self.called.lock().unwrap().entry(event.key).or_default().push(delivery.id);
        Ok(())
    }
}

/// More records than the memory may hold wait for a slow handler, a few of each of many keys.
pub(crate) async fn a_slow_handler_does_not_starve_the_others<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (open, gate) = watch::channel(false);
    let called = Arc::new(Mutex::new(BTreeMap::new()));
    let slow = Registration::typed("slow", Gated { gate, called: Arc::clone(&called) });
    let mut config = stage.config.clone();
    (config.delivery.batch_size, config.delivery.max_in_flight) = (50, 200);
    config.delivery.concurrency = 400;
    // Its calls do not end by themselves.
    config.delivery.handler_timeout = Duration::from_secs(600);
    config.cluster.handover_timeout = Duration::from_secs(1_300);
    let handlers = [slow, ledger.keeper("bookkeeper")];
    let outbox = stage.builder().await.config(config).handlers(handlers).build().await.unwrap();
    let backlog: Vec<Cancelled> =
        (0..1_000).map(|number| Cancelled { key: format!("key-{}", number % 300) }).collect();
    let mut work = T::begin(&stage.pool).await;
    outbox.schedule_all(&mut work, &backlog).await.unwrap();
    T::commit(work).await;
    let running = outbox.start().await.unwrap();
    for number in 1..=3 {
        let others: Vec<_> = (0..300).map(|key| placed(&format!("key-{key}"), number)).collect();
        stage.schedule(&outbox, &others).await;
        ledger.until_done(number as usize * 300).await;
    }
    assert!(called.lock().unwrap().is_empty(), "the gate is shut");
    open.send(true).unwrap();
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 900);
    let called = called.lock().unwrap();
    assert_eq!(called.values().map(Vec::len).sum::<usize>(), 1_000, "nothing is repeated");
    assert!(called.values().all(|ids| ids.is_sorted()), "{called:?}");
}
