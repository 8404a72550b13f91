//! Stopped lanes: listed and released by people, from any process.

use std::{
    collections::BTreeSet,
    ops::RangeInclusive,
    sync::{Arc, Mutex},
    time::Duration,
};

use keylane::{
    HandlerError, Outbox, RecordId, RetryPolicy,
    admin::{Filter, Status, StopReason},
    partition::Partition,
};
use tokio::time::Instant;

use crate::{
    ledger::{Ledger, placed, run_of},
    recorder::eventually,
    stage::{Stage, until_count, until_empty},
    user::User,
};

/// A handler that refuses these numbers for good, until they are removed from the list.
#[derive(Clone)]
struct Refusing(Arc<Mutex<BTreeSet<u32>>>);

impl Refusing {
    fn these<const N: usize>(numbers: [u32; N]) -> Self {
        Self(Arc::new(Mutex::new(BTreeSet::from(numbers))))
    }

    fn handler(&self, ledger: &Ledger) -> keylane::Registration {
        let Self(refused) = self.clone();
        let decide = move |event: &crate::ledger::Placed, _: &keylane::Delivery| {
            let is_refused = refused.lock().unwrap().contains(&event.number);
            if is_refused { Err(HandlerError::new("refused")) } else { Ok(()) }
        };
        ledger.handler("bookkeeper", decide).retry(RetryPolicy::never())
    }

    fn accept(&self, number: u32) {
        self.0.lock().unwrap().remove(&number);
    }
}

/// Waits until this many records are held behind the first blocked record, and returns its id.
async fn blocked<T: User>(outbox: &Outbox<T::Db>, held: u64) -> RecordId {
    let what = format!("a blocked lane with {held} held records");
    let lane = eventually(&what, async || {
        let mut lanes = outbox.admin().stopped_lanes(&Filter::all(), 0, 10).await.unwrap();
        lanes.retain(|lane| lane.reason == StopReason::Blocked && lane.held == held);
        lanes.pop()
    });
    lane.await.record
}

pub(crate) async fn a_blocked_lane_is_listed_with_what_waits_behind<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([Refusing::these([2]).handler(&ledger)]).await;
    stage.schedule(&outbox, &run_of("order-1", 5)).await;
    let record = blocked::<T>(&outbox, 3).await;
    let lanes = outbox.admin().stopped_lanes(&Filter::all(), 0, 10).await.unwrap();
    assert_eq!(lanes.len(), 1);
    let lane = &lanes[0];
    assert_eq!((lane.lane.key.as_str(), lane.lane.handler.as_str()), ("order-1", "bookkeeper"));
    assert_eq!(lane.lane.partition, Partition::of("order-1"));
    assert_eq!((lane.attempts, lane.last_error.as_deref()), (1, Some("refused")));
    assert_eq!(lane.record_type.as_deref(), Some("order.placed"));
    assert_eq!(lane.event_id, Some(outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap()[0].event_id));
    assert!(lane.since < Duration::from_secs(120), "{:?}", lane.since);
    assert!(
        outbox.admin().stopped_lanes(&Filter::all(), record, 10).await.unwrap().is_empty(),
        "pages go by the record"
    );
    let counts = outbox.admin().counts().await.unwrap();
    assert_eq!((counts.of(Status::Held), counts.of(Status::Failed)), (3, 1));
    assert_eq!(counts.stopped_lanes, [(StopReason::Blocked, 1)]);
    running.shutdown().await;
}

pub(crate) async fn retry_lets_a_lane_go_on_in_order<T: User>(stage: &Stage<T>) {
    let (ledger, refusing) = (Ledger::default(), Refusing::these([2]));
    let (outbox, running) = stage.run([refusing.handler(&ledger)]).await;
    stage.schedule(&outbox, &run_of("order-1", 40)).await;
    let record = blocked::<T>(&outbox, 38).await;
    // A retry that comes too early blocks the lane again.
    assert!(outbox.admin().retry(record).await.unwrap());
    ledger.until(crate::ledger::Step::Failed, None, 2).await;
    assert_eq!(blocked::<T>(&outbox, 38).await, record);
    refusing.accept(2);
    assert!(outbox.admin().retry(record).await.unwrap());
    ledger.until_done(40).await;
    until_empty(&outbox).await;
    assert!(!outbox.admin().retry(record).await.unwrap(), "it is no failed record any more");
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 40);
    let attempts = ledger.all().into_iter().filter(|entry| entry.event.number == 2);
    assert!(attempts.into_iter().all(|entry| entry.delivery.attempt == 1), "a retry begins afresh");
}

pub(crate) async fn replace_payload_delivers_another_payload<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([Refusing::these([66]).handler(&ledger)]).await;
    stage.schedule(&outbox, &[placed("order-1", 1), placed("order-1", 66), placed("order-1", 3)]).await;
    let record = blocked::<T>(&outbox, 1).await;
    let payload = serde_json::to_vec(&placed("order-1", 2)).unwrap();
    assert!(outbox.admin().replace_payload(record, payload.clone()).await.unwrap());
    ledger.until_done(3).await;
    until_empty(&outbox).await;
    assert!(!outbox.admin().replace_payload(record, payload).await.unwrap());
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [1, 2, 3]);
}

pub(crate) async fn discard_lets_a_lane_go_on_without_the_record<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([Refusing::these([1, 3]).handler(&ledger)]).await;
    stage.schedule(&outbox, &run_of("order-1", 4)).await;
    let first = blocked::<T>(&outbox, 3).await;
    assert!(outbox.admin().discard(first).await.unwrap());
    let third = blocked::<T>(&outbox, 1).await;
    assert!(third > first);
    assert!(outbox.admin().discard(third).await.unwrap());
    ledger.until_done(2).await;
    until_empty(&outbox).await;
    assert!(!outbox.admin().discard(third).await.unwrap());
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), [2, 4]);
}

/// A page or a command line: a process without handlers that never starts workers.
pub(crate) async fn another_process_lets_lanes_go_on<T: User>(stage: &Stage<T>) {
    let (ledger, refusing) = (Ledger::default(), Refusing::these([1]));
    let (outbox, running) = stage.run([refusing.handler(&ledger)]).await;
    let page = stage.outbox([]).await;
    for key in ["order-1", "order-2", "order-3"] {
        stage.schedule(&outbox, &run_of(key, 4)).await;
    }
    let lanes = eventually("three blocked lanes", async || {
        let lanes = page.admin().stopped_lanes(&Filter::all(), 0, 10).await.unwrap();
        (lanes.len() == 3 && lanes.iter().all(|lane| lane.held == 3)).then_some(lanes)
    })
    .await;
    refusing.accept(1);
    let payload = serde_json::to_vec(&placed(&lanes[2].lane.key, 1)).unwrap();
    let asked_at = Instant::now();
    assert!(page.admin().retry(lanes[0].record).await.unwrap());
    assert!(page.admin().discard(lanes[1].record).await.unwrap());
    assert!(page.admin().replace_payload(lanes[2].record, payload).await.unwrap());
    ledger.until_done(4 + 3 + 4).await;
    let took = asked_at.elapsed();
    assert!(took < Duration::from_secs(20), "the poll interval is 50 ms, but it took {took:?}");
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.done_of(&lanes[0].lane.key), [1, 2, 3, 4]);
    assert_eq!(ledger.done_of(&lanes[1].lane.key), [2, 3, 4]);
    assert_eq!(ledger.done_of(&lanes[2].lane.key), [1, 2, 3, 4]);
}

pub(crate) async fn what_is_scheduled_meanwhile_comes_after<T: User>(stage: &Stage<T>) {
    let (ledger, refusing) = (Ledger::default(), Refusing::these([2]));
    let (outbox, running) = stage.run([refusing.handler(&ledger)]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    let record = blocked::<T>(&outbox, 1).await;
    for number in 4..=6 {
        stage.schedule(&outbox, &[placed("order-1", number)]).await;
    }
    blocked::<T>(&outbox, 4).await;
    refusing.accept(2);
    // More records of the key come at the same moment.
    let more: Vec<_> = (7..=20).map(|number| placed("order-1", number)).collect();
    let late = async {
        for event in &more {
            stage.schedule(&outbox, std::slice::from_ref(event)).await;
        }
    };
    let admin = outbox.admin();
    let (retried, ()) = tokio::join!(admin.retry(record), late);
    assert!(retried.unwrap());
    ledger.until_done(20).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 20);
}

pub(crate) async fn a_blocked_lane_stays_blocked_across_a_restart<T: User>(stage: &Stage<T>) {
    let (ledger, refusing) = (Ledger::default(), Refusing::these([2]));
    let (outbox, running) = stage.run([refusing.handler(&ledger)]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    let record = blocked::<T>(&outbox, 1).await;
    running.shutdown().await;
    let (again, running) = stage.run([refusing.handler(&ledger)]).await;
    stage.schedule(&again, &[placed("order-1", 4), placed("order-2", 1)]).await;
    ledger.until(crate::ledger::Step::Done, Some("order-2"), 1).await;
    assert_eq!(blocked::<T>(&again, 2).await, record);
    refusing.accept(2);
    assert!(again.admin().retry(record).await.unwrap());
    ledger.until_done(5).await;
    until_empty(&again).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 5);
}

/// Delivers an event of each of two keys per round. Returns the median of the times of a round, and 100 ms at least:
/// two polls.
async fn rounds<T: User>(
    stage: &Stage<T>,
    outbox: &Outbox<T::Db>,
    ledger: &Ledger,
    numbers: RangeInclusive<u32>,
) -> Duration {
    let mut took = Vec::new();
    for number in numbers {
        let begun_at = Instant::now();
        stage.schedule(outbox, &[placed("order-1", number), placed("order-2", number)]).await;
        ledger.until_done(number as usize * 2).await;
        took.push(begun_at.elapsed());
    }
    took.sort_unstable();
    took[took.len() / 2].max(Duration::from_millis(100))
}

pub(crate) async fn thousands_behind_a_blocked_key_cost_the_others_nothing<T: User>(stage: &Stage<T>) {
    let (ledger, refusing) = (Ledger::default(), Refusing::these([1_000_000]));
    let mut config = stage.config.clone();
    config.delivery.batch_size = 100;
    config.delivery.max_in_flight = 200;
    let builder = stage.builder().await.config(config);
    let outbox = builder.handler(refusing.handler(&ledger)).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    let without_it = rounds(stage, &outbox, &ledger, 1..=20).await;
    let mut events = vec![placed("blocked", 1_000_000)];
    events.extend((1..=2000).map(|number| placed("blocked", number)));
    stage.schedule(&outbox, &events).await;
    let record = blocked::<T>(&outbox, 2000).await;
    let with_it = rounds(stage, &outbox, &ledger, 21..=40).await;
    assert!(
        with_it < 5 * without_it,
        "a round took {without_it:?} without the blocked key, then {with_it:?}"
    );
    until_count(&outbox, Status::Held, 2000).await;
    assert!(outbox.admin().discard(record).await.unwrap());
    ledger.until_done(2080).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.done_of("blocked"), (1..=2000).collect::<Vec<_>>());
}

pub(crate) async fn a_record_repaired_behind_a_lane_that_went_on_is_found<T: User>(stage: &Stage<T>) {
    let (ledger, refusing) = (Ledger::default(), Refusing::these([2]));
    let handler = refusing.handler(&ledger).on_failure(keylane::OnFailure::Continue);
    let (outbox, running) = stage.run([handler]).await;
    stage.schedule(&outbox, &run_of("order-1", 5)).await;
    ledger.until_done(4).await;
    let failed = eventually("a failed record", async || {
        outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap().pop()
    })
    .await;
    // By then, many fetches have begun behind it.
    for number in 6..20 {
        stage.schedule(&outbox, &[placed("order-1", number)]).await;
        ledger.until_done(number as usize - 1).await;
    }
    refusing.accept(2);
    // Another process repairs the record, so that no call in this process wakes the workers.
    let elsewhere = stage.outbox([]).await;
    assert!(elsewhere.admin().retry(failed.id).await.unwrap());
    ledger.until_done(19).await;
    until_empty(&outbox).await;
    running.shutdown().await;
}

/// More records are held than return at once: they return in steps, which a second failure interrupts and
/// another instance continues.
pub(crate) async fn a_large_backlog_returns_in_order_whatever_happens_meanwhile<T: User>(stage: &Stage<T>) {
    let (ledger, refusing) = (Ledger::default(), Refusing::these([1, 900]));
    let (outbox, running) = stage.run([refusing.handler(&ledger)]).await;
    stage.schedule(&outbox, &run_of("order-1", 2_600)).await;
    let record = blocked::<T>(&outbox, 2_599).await;
    refusing.accept(1);
    assert!(outbox.admin().retry(record).await.unwrap());
    ledger.until(crate::ledger::Step::Failed, None, 2).await;
    let second = eventually("the second failure", async || {
        outbox.admin().failed(&Filter::all(), 0, 1).await.unwrap().pop()
    })
    .await;
    until_count(&outbox, Status::Held, 1_700).await;
    refusing.accept(900);
    assert!(outbox.admin().retry(second.id).await.unwrap());
    ledger.until_done(1_200).await;
    stage
        .schedule(&outbox, &(2_601..=2_700).map(|number| placed("order-1", number)).collect::<Vec<_>>())
        .await;
    running.shutdown().await;
    let (outbox, running) = stage.run([refusing.handler(&ledger)]).await;
    ledger.until_done(2_700).await;
    until_empty(&outbox).await;
    eventually("no lane that stands still", async || {
        outbox.admin().stopped_lanes(&Filter::all(), 0, 10).await.unwrap().is_empty().then_some(())
    })
    .await;
    running.shutdown().await;
    assert_eq!(ledger.done_of("order-1"), (1..=2_700).collect::<Vec<_>>());
}
