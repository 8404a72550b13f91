//! What it costs to keep the books of delivery, without a server.
//!
//! `cargo bench --bench delivery --features sqlite`. `keylane bench` measures the whole.

#![allow(missing_docs)]
#![expect(clippy::expect_used, reason = "a bench that fails should stop")]

use std::{
    convert::Infallible,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use divan::{Bencher, counter::ItemsCount};
use keylane::{
    Config, Outbox, OutboxEvent, State,
    admin::InstanceId,
    database::Database,
    handlers,
    inner::{Change, FenceRow, NewInstance, Settlement, Store, StoreSettings},
    memory::{Memory, MemoryPool, MemoryTransaction},
    outbox_handler,
};
use serde::{Deserialize, Serialize};
use sqlx::{Sqlite, SqlitePool, sqlite::SqliteConnectOptions};
use tokio::{runtime::Runtime, sync::Notify};

/// Records of one drain.
const RECORDS: usize = 10_000;
/// Outcomes of one settle.
const OUTCOMES: i64 = 1_000;

type Error = Box<dyn std::error::Error>;

fn main() {
    divan::main();
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "step.done", key = "key-{key}")]
struct Step {
    key: usize,
}

/// Counts down to the last record.
struct Countdown {
    left: AtomicUsize,
    done: Notify,
}

#[outbox_handler(id = "counter")]
async fn count(_step: Step, State(countdown): State<Arc<Countdown>>) -> Result<(), Infallible> {
    if countdown.left.fetch_sub(1, SeqCst) == 1 {
        countdown.done.notify_one();
    }
    Ok(())
}

/// Records through their lanes, their runs and a settle of the store in memory: as few lanes with long
/// queues, and as one lane per record.
#[divan::bench(args = [10, 10_000], sample_count = 20)]
fn lanes(bencher: Bencher<'_, '_>, keys: usize) {
    let runtime = runtime();
    let drain = |(outbox, tx, countdown): (Outbox<Memory>, MemoryTransaction, Arc<Countdown>)| {
        runtime.block_on(async {
            let running = outbox.start().await.expect("workers");
            tx.commit().await.expect("a commit in memory");
            outbox.wake();
            countdown.done.notified().await;
            running.shutdown().await.graceful
        })
    };
    bencher
        .counter(ItemsCount::new(RECORDS))
        .with_inputs(|| runtime.block_on(backlog(keys)).expect("a backlog in memory"))
        .bench_values(drain);
}

async fn backlog(keys: usize) -> Result<(Outbox<Memory>, MemoryTransaction, Arc<Countdown>), Error> {
    let pool = MemoryPool::new();
    let countdown = Arc::new(Countdown { left: AtomicUsize::new(RECORDS), done: Notify::new() });
    let builder = Outbox::builder(pool.clone()).config(Config::default()).state(Arc::clone(&countdown));
    let outbox = builder.handlers(handlers![count]).build().await?;
    outbox.migrate().await?;
    let steps: Vec<Step> = (0..RECORDS).map(|number| Step { key: number % keys }).collect();
    let mut tx = pool.begin().await?;
    outbox.schedule_all(&mut tx, &steps).await?;
    Ok((outbox, tx, countdown))
}

/// A settle of completions whose records are gone, on SQLite: sorted, encoded, and one statement that
/// finds none of them.
#[divan::bench]
fn settle(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let file = std::env::temp_dir().join(format!("keylane-bench-{}.sqlite", std::process::id()));
    let (store, mut fence) = runtime.block_on(settler(&file)).expect("SQLite");
    let settlement = |id| Settlement { id, failures: 0, change: Change::Complete };
    let settlements: Vec<Settlement> = (1..=OUTCOMES).map(settlement).collect();
    bencher.counter(ItemsCount::new(settlements.len())).bench_local(|| {
        let settled = runtime.block_on(store.settle(fence, &settlements)).expect("a settle");
        fence = fence.moved();
        settled
    });
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
}

async fn settler(file: &Path) -> Result<(Arc<dyn Store>, FenceRow), Error> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    let store = Sqlite::open(&pool, StoreSettings::default())?;
    store.migrate().await?;
    let (id, name, version) = (InstanceId::generate(), "bench".to_owned(), "0".to_owned());
    store.join(&NewInstance { id, name, version, fence_rows: 1 }).await?;
    let server = store.server().await?;
    Ok((store, FenceRow::of_settler(id, server)))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
