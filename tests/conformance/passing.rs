//! No record is missed by fetches that follow the low watermark, while ids are drawn in one order and become
//! visible in another.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use fastrand::Rng;
use keylane::{
    Completed, RecordId,
    inner::{Change, NewRecord},
    partition::PartitionSet,
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};
use uuid::Uuid;

use crate::{
    fetcher::Fetcher,
    outbox::{ALL, Outbox, ids, keys, record, settlement, stop},
    target::{Target, Tx},
};

const KEYS: usize = 4;

/// Adds completed rows. A settle then concerns a small part of the table, which MariaDB finds by ids. If a
/// statement names most of a table, MariaDB reads the whole table and waits for rows of open transactions.
async fn fill<T: Target>(outbox: &Outbox<T>, rows: usize) -> Vec<RecordId> {
    let mut worker = outbox.join().await.over(outbox.store_that(Completed::Keep));
    let known: BTreeSet<RecordId> = ids(&outbox.pending().await).into_iter().collect();
    let done: Vec<NewRecord> = (0..rows).map(|n| record(&format!("order-{n}"))).collect();
    outbox.schedule(&done).await;
    let done: Vec<RecordId> =
        ids(&outbox.pending().await).into_iter().filter(|id| !known.contains(id)).collect();
    worker.settle_all(done.iter().map(|id| settlement((*id, 0, Change::Complete))).collect()).await;
    done
}

/// Schedules and completes records until fetches scan by id, behind all existing ids.
async fn scanned_to_the_end<T: Target>(outbox: &Outbox<T>) -> Fetcher<'_, T> {
    let mut fetcher = Fetcher::join(outbox).await;
    let first = outbox.schedule_keys(&["first"]).await[0];
    fetcher.until_behind(first).await;
    fetcher
}

/// Opens a transaction that has drawn an id.
async fn open<T: Target>(outbox: &Outbox<T>, key: &str) -> Tx<T> {
    let mut tx = outbox.begin().await;
    outbox.insert(&mut tx, &[record(key)]).await;
    tx
}

pub(crate) async fn fetches_bring_everything_once<T: Target>(outbox: &Outbox<T>) {
    let mut fetcher = scanned_to_the_end(outbox).await;
    let mut dice = Rng::with_seed(1);
    let mut scheduled = BTreeSet::new();
    let mut brought = BTreeSet::new();
    for _ in 0..40 {
        let records: Vec<NewRecord> =
            (0..dice.usize(..30)).map(|_| record(&format!("order-{}", dice.usize(..50)))).collect();
        outbox.schedule(&records).await;
        scheduled.extend(records.iter().map(|record| record.event_id));
        fetcher.limit = 1 + dice.usize(..20);
        let found = fetcher.fetch().await;
        assert!(found.iter().all(|record| brought.insert(record.delivery.event_id)));
        fetcher.settle(dice.usize(..25)).await;
    }
    fetcher.limit = ALL;
    brought.extend(fetcher.drain().await.iter().map(|record| record.delivery.event_id));
    assert_eq!(brought, scheduled);
    assert!(outbox.pending().await.is_empty());
}

/// A released record, or a record given up in memory, is below the low watermark.
pub(crate) async fn what_is_pending_again_is_found_after_a_reset<T: Target>(outbox: &Outbox<T>) {
    let mut fetcher = scanned_to_the_end(outbox).await;
    let new = outbox.schedule_keys(&["order-1", "order-1", "order-2"]).await;
    assert_eq!(ids(&fetcher.fetch().await), new);
    let mut worker = outbox.join().await;
    worker.settle([(new[0], 0, stop()), (new[1], 0, Change::Hold { behind: new[0] })]).await;
    fetcher.until_behind(new[2]).await;
    worker.settle([(new[0], 1, Change::CompleteAndResume)]).await;
    fetcher.memory.clear();
    fetcher.missed = PartitionSet::ALL;
    assert_eq!(ids(&fetcher.fetch().await), new[1..], "the one that was held and the one that was given up");
}

pub(crate) async fn a_partition_that_is_gained_is_fetched_from_its_head<T: Target>(outbox: &Outbox<T>) {
    let mut fetcher = Fetcher::join(outbox).await;
    let other = record("order-1");
    assert_ne!(other.partition, record("behind").partition);
    fetcher.owned.remove(other.partition);
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    fetcher.until_behind(id).await;
    assert!(fetcher.memory.is_empty());
    fetcher.owned.insert(other.partition);
    assert_eq!(ids(&fetcher.fetch().await), [id]);
}

pub(crate) async fn an_id_that_was_rolled_back_is_not_waited_for<T: Target>(outbox: &Outbox<T>) {
    let mut fetcher = scanned_to_the_end(outbox).await;
    for _ in 0..3 {
        drop(open(outbox, "order-1").await);
    }
    let after = outbox.schedule_keys(&["order-2"]).await[0];
    fetcher.until_behind(after).await;
    assert!(fetcher.memory.is_empty());
}

/// The last transaction to draw an id commits first, and fetches come all the time.
pub(crate) async fn late_commits_are_not_passed_over<T: Target>(outbox: &Outbox<T>) {
    fill(outbox, 2_000).await;
    let mut fetcher = scanned_to_the_end(outbox).await;
    let mut late = Vec::new();
    for number in 0..3 {
        late.push(open(outbox, &format!("late-{number}")).await);
        outbox.schedule_keys(&["order-1"]).await;
    }
    while let Some(tx) = late.pop() {
        let mut begins = BTreeSet::new();
        for _ in 0..12 {
            // Many, because a fetch begins up to 128 ids before the first one that it needs.
            outbox.schedule_keys(&["order-1"; 16]).await;
            fetcher.fetch().await;
            begins.extend(fetcher.next());
            fetcher.settle(ALL).await;
        }
        outbox.commit(tx).await;
        let found = fetcher.drain().await;
        let found: Vec<_> =
            found.iter().map(|record| (record.delivery.key.as_str(), record.delivery.id)).collect();
        let [(key, id)] = found[..] else { panic!("one was committed late, but {found:?} came") };
        assert_eq!(key, format!("late-{}", late.len()));
        let last = *begins.last().unwrap();
        assert!(last > id, "stayed at {last}, so {id} was not late");
    }
    fetcher.until_behind(outbox.schedule_keys(&["order-1"]).await[0]).await;
}

/// Thousands of completed rows are between a late commit and the begin of scans.
pub(crate) async fn a_late_commit_is_found_among_thousands_that_are_done<T: Target>(outbox: &Outbox<T>) {
    fill(outbox, 5_000).await;
    let mut fetcher = scanned_to_the_end(outbox).await;
    let late = open(outbox, "late").await;
    let done = fill(outbox, 4_200).await;
    assert!(fetcher.drain().await.is_empty());
    let (from, horizon) = fetcher.scanned.clone().unwrap();
    assert!(
        horizon.open_from().is_some() || from > *done.iter().max().unwrap() - 150,
        "scans begin at {from}"
    );
    // Other records are in memory meanwhile.
    outbox.schedule_keys(&["order-1", "order-2", "order-3"]).await;
    assert_eq!(fetcher.fetch().await.len(), 3);
    outbox.commit(late).await;
    let found = fetcher.fetch().await;
    assert_eq!(keys(&found), ["late"]);
    assert!(found[0].delivery.id < *done.iter().min().unwrap());
}

/// The course of a seed: when each event was scheduled and committed, and its key.
#[derive(Default)]
struct Course {
    scheduled: BTreeMap<Uuid, (usize, usize)>,
    committed: BTreeMap<Uuid, usize>,
    brought: BTreeSet<Uuid>,
}

impl Course {
    /// Adds a fetch. Asserts that this or an earlier fetch has brought all events of the key that were
    /// committed before a fetched event was scheduled.
    fn bring(&mut self, events: impl Iterator<Item = Uuid>, at: &str) {
        let new: Vec<Uuid> = events.collect();
        assert!(new.iter().all(|event| self.brought.insert(*event)), "{at}: brought again");
        for later in &new {
            let (key, scheduled) = self.scheduled[later];
            for (cause, committed) in &self.committed {
                let is_cause = self.scheduled[cause].0 == key && *committed < scheduled;
                let missing = is_cause && !self.brought.contains(cause);
                assert!(!missing, "{at}: a record of key {key} was passed over, a later one was brought");
            }
        }
    }
}

/// Three connections insert, commit and roll back in random order, with fetches in between.
async fn interleave<T: Target>(outbox: &Outbox<T>, seed: u64) {
    let mut dice = Rng::with_seed(seed);
    let mut fetcher = scanned_to_the_end(outbox).await;
    let mut course = Course::default();
    let mut open: [Option<(Tx<T>, Vec<Uuid>)>; 3] = [const { None }; 3];
    for step in 0..150 {
        let place = dice.usize(..open.len());
        match dice.usize(..12) {
            0..5 => {
                let key = dice.usize(..KEYS);
                let new = record(&format!("order-{key}"));
                let (mut tx, mut events) = match open[place].take() {
                    Some(open) => open,
                    None => (outbox.begin().await, Vec::new()),
                };
                outbox.insert(&mut tx, std::slice::from_ref(&new)).await;
                course.scheduled.insert(new.event_id, (key, step));
                events.push(new.event_id);
                open[place] = Some((tx, events));
            }
            5..8 => {
                if let Some((tx, events)) = open[place].take() {
                    outbox.commit(tx).await;
                    course.committed.extend(events.into_iter().map(|event| (event, step)));
                }
            }
            8 => drop(open[place].take()),
            _ => {
                fetcher.limit = 1 + dice.usize(..12);
                let found = fetcher.fetch().await;
                let at = format!("seed {seed}, step {step}, {:?}", fetcher.readings);
                course.bring(found.iter().map(|record| record.delivery.event_id), &at);
                fetcher.settle(dice.usize(..8)).await;
            }
        }
    }
    drop(open);
    fetcher.limit = ALL;
    let rest = fetcher.drain().await;
    course.bring(rest.iter().map(|record| record.delivery.event_id), &format!("seed {seed}, the end"));
    assert_eq!(course.brought.len(), course.committed.len(), "seed {seed}: some were never brought");
}

/// `KEYLANE_SEEDS=1000..2000` plays other seeds.
pub(crate) async fn a_fetch_that_brings_a_record_has_its_causes<T: Target>(outbox: &Outbox<T>) {
    let seeds = std::env::var("KEYLANE_SEEDS").unwrap_or_else(|_| "0..8".to_owned());
    let (first, end) = seeds.split_once("..").expect("KEYLANE_SEEDS is first..end");
    fill(outbox, 2_000).await;
    for seed in first.parse().unwrap()..end.parse().unwrap() {
        eprintln!("seed {seed}");
        interleave(outbox, seed).await;
    }
}

/// Inserts and commits some time later, one transaction per key at a time. Lists the committed events per
/// key.
async fn write<T: Target>(outbox: &Outbox<T>, keys: &[Mutex<Vec<Uuid>>], seed: u64) {
    let mut dice = Rng::with_seed(seed);
    for _ in 0..120 {
        let key = dice.usize(..keys.len());
        let mut committed = keys[key].lock().await;
        let new = record(&format!("order-{key}"));
        let mut tx = outbox.begin().await;
        outbox.insert(&mut tx, std::slice::from_ref(&new)).await;
        let pause = if dice.usize(..20) == 0 { 30 } else { dice.usize(..4) };
        sleep(Duration::from_millis(pause as u64)).await;
        if dice.usize(..8) > 0 {
            outbox.commit(tx).await;
            committed.push(new.event_id);
        }
    }
}

pub(crate) async fn fetches_beside_writers_invert_and_lose_nothing<T: Target>(outbox: &Outbox<T>) {
    fill(outbox, 2_000).await;
    let keys: [Mutex<Vec<Uuid>>; 8] = std::array::from_fn(|_| Mutex::default());
    let ended = AtomicBool::new(false);
    let writers = async {
        tokio::join!(write(outbox, &keys, 1), write(outbox, &keys, 2), write(outbox, &keys, 3));
        ended.store(true, SeqCst);
    };
    let mut fetcher = scanned_to_the_end(outbox).await;
    let fetches = async {
        let mut dice = Rng::with_seed(4);
        let mut brought = Vec::new();
        let started = Instant::now();
        while !ended.load(SeqCst) {
            assert!(started.elapsed() < Duration::from_secs(120), "the writers do not come to an end");
            fetcher.limit = 1 + dice.usize(..20);
            brought.extend(fetcher.fetch().await);
            fetcher.settle(dice.usize(..20)).await;
        }
        fetcher.limit = ALL;
        brought.extend(fetcher.drain().await);
        brought
    };
    let ((), brought) = tokio::join!(writers, fetches);
    for (key, committed) in keys.into_iter().enumerate() {
        let key = format!("order-{key}");
        let of_key = brought.iter().filter(|record| record.delivery.key == key);
        let of_key: Vec<Uuid> = of_key.map(|record| record.delivery.event_id).collect();
        assert_eq!(of_key, committed.into_inner(), "{key}: brought and committed in another order");
    }
}
