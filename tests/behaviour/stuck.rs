//! Handlers that never return, with a large backlog: the other handlers of the instance go on.

use std::time::Duration;

use keylane::{
    BatchHandler, BatchResults, Delivery, Handler, HandlerError, Mode, Registration, TransactionalHandler,
    memory::{Memory, MemoryConnection},
};
use tokio::time::{sleep, timeout};

use crate::{
    leases::{Paused, s},
    ledger::{Cancelled, Ledger, Placed, placed},
    sharing::Slow,
};

/// Does not return, in any form.
struct Stuck;

impl TransactionalHandler<Memory> for Stuck {
    type Event = Cancelled;

    async fn handle(&self, _: Cancelled, _: &mut MemoryConnection, _: &Delivery) -> Result<(), HandlerError> {
        std::future::pending().await
    }
}

impl Handler for Stuck {
    type Event = Cancelled;

    async fn handle(&self, _: Cancelled, _: &Delivery) -> Result<(), HandlerError> {
        std::future::pending().await
    }
}

impl BatchHandler for Stuck {
    type Event = Cancelled;

    async fn handle(&self, _: Vec<Cancelled>, _: &[&Delivery]) -> BatchResults {
        std::future::pending().await
    }
}

fn single(id: &str) -> Registration {
    Registration::typed(id, Stuck)
}

fn keeper(ledger: &Ledger) -> Registration {
    ledger.keeper("bookkeeper")
}

fn transactional_keeper(ledger: &Ledger) -> Registration {
    Registration::transactional("bookkeeper", Slow(ledger.clone(), Duration::ZERO))
}

/// What waits for each stuck handler.
#[derive(Clone, Copy, Debug)]
struct Backlog {
    records: usize,
    keys: usize,
    /// A payload has about 17 bytes, and these.
    padding: usize,
    /// The setting `max_in_flight_bytes`.
    memory_bytes: usize,
}

const MANY_KEYS: Backlog = Backlog { records: 1_000, keys: 500, padding: 0, memory_bytes: 64 << 20 };
const LONG_QUEUES: Backlog = Backlog { records: 20_000, keys: 150, ..MANY_KEYS };
const LARGE_PAYLOADS: Backlog = Backlog { records: 20_000, memory_bytes: 10_000, ..MANY_KEYS };
/// The first claim brings more than the memory is meant for: nothing is known of the payloads yet.
const LARGER_PAYLOADS: Backlog = Backlog { padding: 200, memory_bytes: 20_000, ..MANY_KEYS };

/// Handlers with a backlog stand still. Then `other` gets 300 records.
async fn others_go_on(
    mode: Mode,
    backlog: Backlog,
    stuck: impl IntoIterator<Item = Registration>,
    other: fn(&Ledger) -> Registration,
) {
    let mut stage = Paused::new();
    stage.config.mode = mode;
    stage.config.delivery.handler_timeout = s(3_600);
    stage.config.cluster.handover_timeout = s(9_000);
    stage.config.delivery.transactional_concurrency = 4;
    stage.config.delivery.max_in_flight_bytes = backlog.memory_bytes;
    let ledger = Ledger::default();
    let outbox = stage.outbox(stuck.into_iter().chain([other(&ledger)])).await;
    let padding = "-".repeat(backlog.padding);
    let events: Vec<Cancelled> = (0..backlog.records)
        .map(|number| Cancelled { key: format!("key-{}{padding}", number % backlog.keys) })
        .collect();
    outbox.transaction(async |tx| outbox.schedule_all(tx, &events).await).await.unwrap();
    let running = outbox.start().await.unwrap();
    sleep(s(2)).await;
    for number in 1..=3 {
        let events: Vec<Placed> = (0..100).map(|key| placed(&format!("key-{key}"), number)).collect();
        stage.schedule(&outbox, &events).await;
        let done = timeout(Duration::from_secs(60), ledger.until_done(number as usize * 100)).await;
        done.unwrap_or_else(|_| panic!("{mode:?}, {backlog:?}: the others stand still"));
    }
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_never_returns_leaves_calls_to_the_others() {
    for mode in [Mode::Partitioned, Mode::Claimed] {
        others_go_on(mode, MANY_KEYS, [single("stuck")], keeper).await;
        others_go_on(mode, MANY_KEYS, ["one", "two", "three"].map(single), keeper).await;
    }
}

/// Its runs hold several records of each key: they would fill the memory.
#[tokio::test(start_paused = true)]
async fn a_handler_that_never_returns_leaves_memory_to_the_others() {
    for mode in [Mode::Partitioned, Mode::Claimed] {
        others_go_on(mode, LONG_QUEUES, [single("stuck")], keeper).await;
        others_go_on(mode, LONG_QUEUES, ["one", "two"].map(single), keeper).await;
        others_go_on(mode, LARGE_PAYLOADS, ["one", "two"].map(single), keeper).await;
        others_go_on(mode, LARGER_PAYLOADS, [single("stuck")], keeper).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_handler_that_never_returns_leaves_memory_to_the_others() {
    for mode in [Mode::Partitioned, Mode::Claimed] {
        others_go_on(mode, LONG_QUEUES, [Registration::batch("stuck", 40, Stuck)], keeper).await;
        others_go_on(mode, LONG_QUEUES, [Registration::mixed_batch("stuck", 500, Stuck)], keeper).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_transactional_handler_that_never_returns_leaves_calls_to_the_others() {
    for mode in [Mode::Partitioned, Mode::Claimed] {
        for other in [keeper, transactional_keeper] {
            others_go_on(mode, MANY_KEYS, [Registration::transactional("stuck", Stuck)], other).await;
        }
    }
}
