//! Services learn of the end of their workers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane::{
    Finished, Signal,
    inner::conditions::{Conditions, Passage, Written},
    memory::{Fault, Memory},
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    leases::{Paused, s},
    ledger::{Ledger, Step, run_of, typed},
    stage::store_of,
};

const SOON: Duration = Duration::from_millis(10);

/// A database that takes three seconds for this call, once it is told to.
#[derive(Debug)]
struct Slow {
    call: &'static str,
    told: AtomicBool,
}

impl Conditions for Slow {
    fn meet(&self, call: &'static str) -> Passage {
        let is_slow = call == self.call && self.told.load(SeqCst);
        Passage { before: if is_slow { s(3) } else { Duration::ZERO }, ..Passage::default() }
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wrote(&self, _: Vec<Written>) {}
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_told_to_all_who_wait() {
    let stage = Paused::new();
    let (_, running) = stage.run([Ledger::default().keeper("bookkeeper")]).await;
    // One caller gives up, one asks before the end, and one asks after it.
    assert!(timeout(SOON, running.finished()).await.is_err(), "they work");
    let (before, late) = (running.finished(), running.finished());
    let waiting = tokio::spawn(before);
    let report = running.shutdown().await;
    assert!(report.graceful);
    for told in [waiting.await.unwrap(), late.await] {
        assert_eq!(told, Finished::Shutdown { report });
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_that_ends_the_workers_is_told() {
    let stage = Paused::new();
    stage.pool.fail_next("claim", 1, Fault::Panic);
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    let running = outbox.start().await.unwrap();
    let told = timeout(Duration::from_secs(60), running.finished()).await.expect("nobody is told");
    let Finished::Panicked { error } = &told else { panic!("{told:?}") };
    assert!(error.contains("as the test asked"), "{error}");
    let me = running.instance();
    let died = |signal: &Signal| matches!(signal, Signal::WorkersDied { instance, .. } if *instance == me);
    assert_eq!(stage.signals.count(died), 1);
    assert_eq!(running.finished().await, told, "also afterwards");
    assert!(!running.shutdown().await.graceful);
}

#[tokio::test(start_paused = true)]
async fn workers_that_are_dropped_are_told() {
    let stage = Paused::new();
    let (_, running) = stage.run([Ledger::default().keeper("bookkeeper")]).await;
    let finished = running.finished();
    drop(running);
    assert_eq!(finished.await, Finished::Dropped);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_the_next_try_to_join() {
    let stage = Paused::new();
    let (_, running) = stage.run([Ledger::default().keeper("bookkeeper")]).await;
    let joins = |signal: &Signal| matches!(signal, Signal::StoreFailed { call: "join", .. });
    stage.pool.fail_next("join", 1000, Fault::NotApplied);
    store_of::<Memory>(&stage.pool, &stage.config).evict(running.instance(), None).await.unwrap();
    // By then the pauses have grown to seconds.
    stage.signals.at_least(7, "tries to join", joins).await;
    let since = Instant::now();
    running.shutdown().await;
    assert!(since.elapsed() < Duration::from_millis(500), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_token_shuts_the_workers_down() {
    let (stage, token) = (Paused::new(), CancellationToken::new());
    let builder = stage.builder().shutdown_on(token.clone()).handler(Ledger::default().keeper("bookkeeper"));
    let outbox = builder.build().await.unwrap();
    let running = outbox.start().await.unwrap();
    assert!(timeout(SOON, running.finished()).await.is_err(), "they work");
    token.cancel();
    let told = timeout(Duration::from_secs(5), running.finished()).await.expect("the token is not heard");
    let Finished::Shutdown { report } = told else { panic!("{told:?}") };
    assert!(report.graceful);
    let left = |signal: &Signal| matches!(signal, Signal::Left { .. });
    assert_eq!(stage.signals.count(left), 1);
    let again = outbox.start().await.unwrap().finished();
    let ended = timeout(Duration::from_secs(5), again).await;
    assert_eq!(ended, Ok(told), "workers that start later end at once");
    assert_eq!(stage.signals.count(left), 1, "they do not even join");
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_a_start_that_waits_for_the_database() {
    for call in ["check", "join"] {
        let (stage, token) = (Paused::new(), CancellationToken::new());
        let builder =
            stage.builder().shutdown_on(token.clone()).handler(Ledger::default().keeper("bookkeeper"));
        let outbox = builder.build().await.unwrap();
        stage.pool.fail_next(call, 1000, Fault::NotApplied);
        let starting = tokio::spawn(async move { outbox.start().await });
        let tries = |signal: &Signal| matches!(signal, Signal::StoreFailed { .. });
        // By then the pauses have grown to seconds.
        stage.signals.at_least(7, "tries", tries).await;
        let since = Instant::now();
        token.cancel();
        let ended = async { starting.await.unwrap().unwrap().finished().await };
        let told = timeout(Duration::from_secs(60), ended).await.expect("the token is not heard");
        assert!(matches!(told, Finished::Shutdown { .. }), "{told:?}");
        assert!(since.elapsed() < Duration::from_millis(500), "{call}: {:?}", since.elapsed());
    }
}

/// The instance is told to leave while it waits for a view or releases partitions, or the database takes its time to
/// note that it leaves.
#[tokio::test(start_paused = true)]
async fn a_shutdown_begins_no_call_while_it_waits_for_the_database() {
    for call in ["view", "release", "drain"] {
        let (mut stage, slow) = (Paused::new(), Arc::new(Slow { call, told: AtomicBool::new(false) }));
        stage.pool = stage.pool.under(slow.clone());
        let ledger = Ledger::default();
        let entries = ledger.clone();
        let handler = typed("bookkeeper", move |event, delivery| {
            let entries = entries.clone();
            async move {
                entries.push(Step::Began, &event, &delivery);
                sleep(Duration::from_millis(100)).await;
                Ok(())
            }
        });
        let (outbox, running) = stage.run([handler]).await;
        for key in 1..=8 {
            stage.schedule(&outbox, &run_of(&format!("order-{key}"), 100)).await;
        }
        ledger.until(Step::Began, None, 1).await;
        slow.told.store(true, SeqCst);
        // It wants a view, because the cluster has changed.
        let other = stage.outbox([Ledger::default().keeper("bookkeeper")]).await.start().await.unwrap();
        sleep(Duration::from_millis(1_250)).await;
        let (since, shutdown) = (Instant::now(), tokio::spawn(running.shutdown()));
        // What begins at this very moment may come before it.
        sleep(Duration::from_millis(1)).await;
        let begun = ledger.steps(Step::Began).len();
        assert!(shutdown.await.unwrap().graceful);
        assert!(since.elapsed() > s(1), "{call}: the database was not slow");
        assert_eq!(ledger.steps(Step::Began).len(), begun, "{call}");
        other.shutdown().await;
    }
}
