//! Overlapping transactions: ids are drawn in one order and committed in another, while an outbox runs. Each
//! key is written by one transaction at a time, so its order is defined.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use fastrand::Rng;
use futures::future::join_all;
use keylane::{Outbox, RetryPolicy};
use tokio::{sync::Mutex, time::sleep};

use crate::{
    ledger::{Ledger, Step, placed},
    retrying::refused,
    stage::{Stage, until_empty},
    user::User,
};

const KEYS: usize = 20;
const RECORDS: usize = 3_000;
const WRITERS: u64 = 4;

/// The progress of the writers.
#[derive(Default)]
struct Written {
    /// The last number of each key. A writer of the key holds its lock until the commit.
    keys: [Mutex<u32>; KEYS],
    records: AtomicUsize,
}

/// One connection: transactions of one to three records, with a pause before their end; one in ten is
/// rolled back.
async fn write<T: User>(stage: &Stage<T>, outbox: &Outbox<T::Db>, written: &Written, seed: u64) {
    let mut dice = Rng::with_seed(seed);
    while written.records.load(SeqCst) < RECORDS {
        let key = dice.usize(..KEYS);
        let mut last = written.keys[key].lock().await;
        let next = *last + 1 + dice.usize(..3) as u32;
        let events: Vec<_> = (*last + 1..=next).map(|number| placed(&format!("key-{key}"), number)).collect();
        let mut work = T::begin(&stage.pool).await;
        outbox.schedule_all(&mut work, &events).await.unwrap();
        let pause = if dice.usize(..100) == 0 { 50 } else { dice.usize(..6) };
        sleep(Duration::from_millis(pause as u64)).await;
        if dice.usize(..10) == 0 {
            T::rollback(work).await;
            continue;
        }
        T::commit(work).await;
        *last = next;
        written.records.fetch_add(events.len(), SeqCst);
        if dice.usize(..3) > 0 {
            outbox.wake();
        }
    }
}

async fn write_all<T: User>(stage: &Stage<T>, outbox: &Outbox<T::Db>, written: &Written) {
    join_all((1..=WRITERS).map(|seed| write(stage, outbox, written, seed))).await;
}

/// One record in forty fails once, so that records are held and return.
fn unlucky_once(ledger: &Ledger) -> keylane::Registration {
    let handler = ledger.handler("bookkeeper", |event, delivery| {
        if delivery.attempt == 1 && event.number % 40 == 7 { Err(refused()) } else { Ok(()) }
    });
    handler.retry(RetryPolicy::fixed(Duration::from_millis(20)).max_retries(3))
}

/// Asserts that all records were delivered, each key in order.
async fn verdict<T: User>(ledger: &Ledger, outbox: &Outbox<T::Db>, written: &Written) {
    let records = written.records.load(SeqCst);
    ledger.until_done(records).await;
    until_empty(outbox).await;
    assert_eq!(ledger.assert_in_order(), records);
    assert!(!ledger.steps(Step::Failed).is_empty());
}

async fn cross<T: User>(stage: &Stage<T>, batch_size: Option<usize>) {
    let ledger = Ledger::default();
    let mut config = stage.config.clone();
    config.delivery.batch_size = batch_size.unwrap_or(config.delivery.batch_size);
    let builder = stage.builder().await.config(config);
    let outbox = builder.handler(unlucky_once(&ledger)).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    let written = Written::default();
    write_all(stage, &outbox, &written).await;
    verdict::<T>(&ledger, &outbox, &written).await;
    assert!(running.shutdown().await.graceful);
}

pub(crate) async fn fetches_of_ten_pass_over_nothing<T: User>(stage: &Stage<T>) {
    cross(stage, Some(10)).await;
}

pub(crate) async fn large_fetches_pass_over_nothing<T: User>(stage: &Stage<T>) {
    cross(stage, None).await;
}

/// A second instance takes half of the partitions and later all of them, at any point of its fetches.
pub(crate) async fn a_handover_between_fetches_passes_over_nothing<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let written = Written::default();
    let (first, running) = stage.run([unlucky_once(&ledger)]).await;
    let second = stage.outbox([unlucky_once(&ledger)]).await;
    let handover = async {
        ledger.until_done(RECORDS / 4).await;
        let joined = second.start().await.unwrap();
        ledger.until_done(RECORDS / 2).await;
        assert!(running.shutdown().await.graceful);
        joined
    };
    let ((), joined) = tokio::join!(write_all(stage, &first, &written), handover);
    verdict::<T>(&ledger, &second, &written).await;
    assert!(joined.shutdown().await.graceful);
}
