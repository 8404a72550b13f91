//! The ends of workers: by shutdown, by force, by drop, by eviction.

use std::{collections::BTreeSet, time::Duration};

use keylane::{
    Registration, Running, Signal,
    admin::{InstanceId, Status},
};
use tokio::{sync::watch, time::Instant};

use crate::{
    ledger::{Ledger, Placed, Step, placed, run_of, typed},
    recorder::bounded,
    stage::{Stage, until_count, until_empty},
    user::User,
};

/// A handler that waits until a gate opens, or for ever without a gate.
fn waiting(ledger: &Ledger, gate: Option<watch::Receiver<bool>>) -> Registration {
    let ledger = ledger.clone();
    typed("bookkeeper", move |event: Placed, delivery| {
        let (ledger, gate) = (ledger.clone(), gate.clone());
        async move {
            ledger.push(Step::Began, &event, &delivery);
            match gate {
                Some(mut gate) => drop(gate.wait_for(|open| *open).await?),
                None => std::future::pending().await,
            }
            ledger.push(Step::Done, &event, &delivery);
            Ok(())
        }
    })
}

pub(crate) async fn a_shutdown_finishes_what_is_in_flight<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (open, gate) = watch::channel(false);
    let (outbox, running) = stage.run([waiting(&ledger, Some(gate))]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    stage.schedule(&outbox, &[placed("order-2", 1)]).await;
    ledger.until(Step::Began, None, 2).await;
    let mut shutdown = tokio::spawn(running.shutdown());
    let waits = tokio::time::timeout(Duration::from_millis(300), &mut shutdown).await;
    assert!(waits.is_err(), "it waits for the handlers");
    // A record that comes now is not for these workers.
    stage.schedule(&outbox, &[placed("order-3", 1)]).await;
    open.send(true).unwrap();
    let report = bounded("the shutdown", shutdown).await.unwrap();
    assert_eq!((report.graceful, report.cancelled), (true, 0));
    assert_eq!(ledger.done_of("order-1"), [1], "what was begun is finished, nothing else is begun");
    assert_eq!(ledger.done_of("order-2"), [1]);
    until_count(&outbox, Status::Pending, 3).await;
    let running = outbox.start().await.unwrap();
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(stage.signals.count(|signal| matches!(signal, Signal::WorkersDropped { .. })), 0);
    assert_eq!(ledger.assert_in_order(), 5);
}

pub(crate) async fn handlers_that_hang_are_cancelled_and_reported<T: User>(stage: &Stage<T>) {
    let (ledger, again) = (Ledger::default(), Ledger::default());
    let mut config = stage.config.clone();
    config.cluster.graceful_shutdown_timeout = Duration::from_millis(300);
    let builder = stage.builder().await.config(config).handler(waiting(&ledger, None));
    let outbox = builder.build().await.unwrap();
    let running = outbox.start().await.unwrap();
    let events: Vec<Placed> = (1..=3).map(|key| placed(&format!("order-{key}"), 1)).collect();
    stage.schedule(&outbox, &events).await;
    ledger.until(Step::Began, None, 3).await;
    let asked_at = Instant::now();
    let report = bounded("the shutdown", running.shutdown()).await;
    assert_eq!((report.graceful, report.cancelled), (false, 3));
    assert!(asked_at.elapsed() >= Duration::from_millis(300), "{:?}", asked_at.elapsed());
    let forced = stage.signals.picked(|signal| match signal {
        Signal::ShutdownForced { records } => Some(*records),
        _ => None,
    });
    assert_eq!(forced, [3]);
    // The instance has left nevertheless: the next one need not wait for its silence, and no attempt counts.
    let (next, running) = stage.run([again.keeper("bookkeeper")]).await;
    again.until_done(3).await;
    until_empty(&next).await;
    running.shutdown().await;
    assert!(again.steps(Step::Done).iter().all(|entry| entry.delivery.attempt == 1));
}

/// As in a crash, the workers notify no one, and the others detect the silence.
pub(crate) async fn dropped_workers_stop_at_once_and_others_take_over<T: User>(stage: &Stage<T>) {
    let (ledger, second) = (Ledger::default(), Ledger::default());
    let mut config = stage.config.clone();
    config.cluster.stale_instance_timeout = Duration::from_secs(3);
    config.database.call_timeout = Duration::from_secs(2);
    let build =
        async |handler| stage.builder().await.config(config.clone()).handler(handler).build().await.unwrap();
    let outbox = build(waiting(&ledger, None)).await;
    let running: Running = outbox.start().await.unwrap();
    stage.schedule(&outbox, &[placed("order-1", 1), placed("order-2", 1)]).await;
    ledger.until(Step::Began, None, 2).await;
    let dead = running.instance();
    let other = build(second.keeper("bookkeeper")).await;
    drop(running);
    let dropped_at = Instant::now();
    let told = |signal: &Signal| matches!(signal, Signal::WorkersDropped { .. });
    assert_eq!(stage.signals.count(told), 1);
    let joined = other.start().await.unwrap();
    second.until_done(2).await;
    let took = dropped_at.elapsed();
    assert!(took >= Duration::from_secs(2), "after {took:?} its silence was not long enough");
    assert!(took <= Duration::from_secs(3 + 3 + 2), "took over after {took:?}");
    until_empty(&other).await;
    joined.shutdown().await;
    let evicted: BTreeSet<InstanceId> = stage
        .signals
        .picked(|signal| match signal {
            Signal::PeerEvicted { instance, silent_for: Some(_) } => Some(*instance),
            _ => None,
        })
        .into_iter()
        .collect();
    assert_eq!(evicted, BTreeSet::from([dead]));
    assert_eq!(ledger.steps(Step::Began).len(), 2, "the dropped workers have begun something else");
}

pub(crate) async fn an_evicted_instance_joins_again_under_a_new_identity<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (open, gate) = watch::channel(true);
    let (outbox, running) = stage.run([waiting(&ledger, Some(gate))]).await;
    let first: Vec<Placed> = (1..=20).map(|key| placed(&format!("order-{key}"), 1)).collect();
    stage.schedule(&outbox, &first).await;
    until_empty(&outbox).await;
    // One record is in flight when the eviction comes.
    open.send(false).unwrap();
    stage.schedule(&outbox, &[placed("late", 1)]).await;
    ledger.until(Step::Began, Some("late"), 1).await;
    let me = running.instance();
    assert!(stage.store().evict(me, None).await.unwrap());
    let evicted = |signal: &Signal| matches!(signal, Signal::Evicted { instance } if *instance == me);
    stage.signals.first("the eviction", |signal| evicted(signal).then_some(())).await;
    open.send(true).unwrap();
    let next = stage
        .signals
        .first("the new identity", |signal| match signal {
            Signal::Joined { instance } if *instance != me => Some(*instance),
            _ => None,
        })
        .await;
    stage.schedule(&outbox, &[placed("late", 2)]).await;
    ledger.until(Step::Done, Some("late"), 2).await;
    assert_eq!(running.instance(), next);
    until_empty(&outbox).await;
    running.shutdown().await;
    // Settled records are not delivered again. Records in flight are, and no attempt was counted.
    let done: Vec<String> = ledger.steps(Step::Done).into_iter().map(|entry| entry.event.key).collect();
    assert_eq!(done.iter().filter(|key| *key != "late").count(), 20);
    let attempts: Vec<(u32, u32)> = ledger
        .steps(Step::Began)
        .iter()
        .filter(|entry| entry.event.key == "late")
        .map(|entry| (entry.event.number, entry.delivery.attempt))
        .collect();
    assert_eq!(attempts, [(1, 1), (1, 1), (2, 1)]);
}

/// Both wings survive evictions, however many.
pub(crate) async fn evictions_lose_nothing_and_invert_nothing<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let store = stage.store();
    for round in 0..4 {
        let part: Vec<Placed> = (1..=100)
            .flat_map(|number| (0..5).map(move |key| placed(&format!("key-{key}"), round * 100 + number)))
            .collect();
        stage.schedule(&outbox, &part).await;
        ledger.until_done(round as usize * 500 + 50).await;
        store.evict(running.instance(), None).await.unwrap();
    }
    until_empty(&outbox).await;
    running.shutdown().await;
    // A record that was done but not settled comes again: numbers may repeat, but none is left out.
    let mut highest = std::collections::BTreeMap::new();
    for entry in ledger.steps(Step::Done) {
        let highest = highest.entry(entry.event.key.clone()).or_insert(0);
        assert!(entry.event.number <= *highest + 1, "{} after {highest}", entry.event.number);
        *highest = entry.event.number.max(*highest);
    }
    assert!(highest.values().all(|highest| *highest == 400), "{highest:?}");
}

pub(crate) async fn two_outboxes_in_one_database_do_not_meet<T: User>(stage: &Stage<T>) {
    let (ledger, beside) = (Ledger::default(), Ledger::default());
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    let mut config = stage.config.clone();
    config.table_prefix.push_str("x_");
    let builder = stage.builder().await.config(config).handler(beside.keeper("bookkeeper"));
    let other = builder.build().await.unwrap();
    other.migrate().await.unwrap();
    let second = other.start().await.unwrap();
    // Both in one transaction of the user.
    let mut work = T::begin(&stage.pool).await;
    outbox.schedule(&mut work, &placed("order-1", 1)).await.unwrap();
    other.schedule(&mut work, &placed("order-1", 2)).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    other.wake();
    ledger.until_done(1).await;
    beside.until_done(1).await;
    running.shutdown().await;
    second.shutdown().await;
    assert_eq!((ledger.done_of("order-1"), beside.done_of("order-1")), (vec![1], vec![2]));
}

/// Views of the cluster, and beats, which bring one, are further apart than a case may take: polls report
/// joins and leaves.
pub(crate) async fn polls_tell_of_changes_in_the_cluster<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let mut config = stage.config.clone();
    config.cluster.rebalance_interval = Duration::from_secs(30);
    config.cluster.heartbeat_interval = Duration::from_secs(30);
    config.cluster.stale_instance_timeout = Duration::from_secs(90);
    let start = async || {
        let builder = stage.builder().await.config(config.clone()).handler(ledger.keeper("bookkeeper"));
        let outbox = builder.build().await.unwrap();
        let running = outbox.start().await.unwrap();
        (outbox, running)
    };
    let granted = async |count: usize| {
        let what = format!("{count} partitions granted");
        crate::recorder::eventually(&what, async || {
            let granted = stage.signals.picked(|signal| match signal {
                Signal::PartitionsGranted { partitions } => Some(partitions.len()),
                _ => None,
            });
            (granted.iter().sum::<usize>() >= count).then_some(())
        })
        .await;
    };
    let (outbox, first) = start().await;
    granted(256).await;
    let (_, second) = start().await;
    // The first instance sees the second one and releases half of the partitions.
    granted(256 + 128).await;
    assert!(first.shutdown().await.graceful);
    granted(256 + 128 + 128).await;
    stage.schedule(&outbox, &crate::ledger::dealt(20, 2)).await;
    ledger.until_done(40).await;
    until_empty(&outbox).await;
    second.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 40);
}

/// An operator moves partitions in the table: their owner stops, and joins again.
pub(crate) async fn partitions_that_were_moved_by_hand_have_one_owner<T: User + crate::target::SqlTarget>(
    stage: &Stage<T>,
) {
    let (ledger, calls) = (Ledger::default(), Ledger::default());
    let (outbox, first) = stage.run([ledger.keeper("bookkeeper")]).await;
    let (_, second) = stage.run([calls.keeper("bookkeeper")]).await;
    let was = first.instance();
    stage.schedule(&outbox, &crate::ledger::dealt(40, 1)).await;
    until_empty(&outbox).await;
    let moved = format!(
        "UPDATE {{outbox}}partition SET owner = '{}', generation = generation + 1 WHERE owner = '{was}'",
        second.instance()
    );
    stage.execute(&moved).await;
    let lost = |signal: &Signal| matches!(signal, Signal::ClaimsLost { .. }).then_some(());
    stage.signals.first("the loss of claims", lost).await;
    let joined = |signal: &Signal| matches!(signal, Signal::Joined { .. });
    stage.signals.at_least(3, "the first to join again", joined).await;
    for key in 1..=40 {
        stage.schedule(&outbox, &[placed(&format!("key-{key}"), 2)]).await;
    }
    until_empty(&outbox).await;
    assert_ne!(first.instance(), was);
    first.shutdown().await;
    second.shutdown().await;
    let done = |ledger: &Ledger| ledger.steps(Step::Done).len();
    assert_eq!(done(&ledger) + done(&calls), 80, "each once, by one of the two");
    assert_eq!(stage.signals.count(|signal| lost(signal).is_some()), 1);
}
