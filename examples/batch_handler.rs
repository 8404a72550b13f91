//! Handlers that are given several events in one call.
//!
//! `total` is given runs of one key, at most four readings of one meter at a time, and returns one
//! result for each. Its second call fails in the middle: what was before counts, the failed reading
//! and all after it come again, in order. `archive` is given readings of all meters at once, as for a
//! bulk insert. Prints the calls; of `total` those for one of the two meters.
#![allow(clippy::print_stdout)]

use std::{error::Error, path::Path, time::Duration};

use keylane::{
    BatchResults, Config, Delivery, HandlerError, Outbox, OutboxEvent, State, handlers, outbox_handler,
    sqlx::{SqlitePool, sqlite::SqliteConnectOptions},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "meter.read", key = "meter-{meter}")]
struct Reading {
    meter: String,
    hour: u32,
}

/// What each handler was called with, told to `main`.
#[derive(Clone)]
struct Calls {
    total: UnboundedSender<String>,
    archive: UnboundedSender<String>,
}

/// Fails at the first attempt of hour 6, and does not try what comes after.
#[outbox_handler(id = "total", batch = 4, retry(fixed, delay = "20ms"))]
async fn total(readings: Vec<Reading>, deliveries: &[&Delivery], State(calls): State<Calls>) -> BatchResults {
    let mut results = BatchResults::new();
    for (reading, delivery) in readings.iter().zip(deliveries) {
        if reading.hour == 6 && delivery.attempt == 1 {
            results.push(Err(HandlerError::new("the sum is locked")));
            break;
        }
        results.push(Ok(()));
    }
    if readings.iter().all(|reading| reading.meter == "attic") {
        let hours: Vec<u32> = readings.iter().map(|reading| reading.hour).collect();
        let results: Vec<&str> =
            results.iter().map(|result| if result.is_ok() { "ok" } else { "failed" }).collect();
        let _ = calls.total.send(format!("total: hours {hours:?} -> {}", results.join(", ")));
    }
    results
}

/// `Ok(())` is the result of all of them.
#[outbox_handler(id = "archive", batch(size = 100, mixed))]
async fn archive(readings: Vec<Reading>, State(calls): State<Calls>) -> Result<(), HandlerError> {
    let attic = readings.iter().filter(|reading| reading.meter == "attic").count();
    let barn = readings.len() - attic;
    Ok(calls.archive.send(format!("archive: {attic} readings of the attic, {barn} of the barn"))?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("keylane-batch-handler-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let shown = show(&dir).await;
    std::fs::remove_dir_all(&dir)?;
    shown
}

async fn show(dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = SqliteConnectOptions::new().filename(dir.join("meters.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(file).await?;
    let mut config = Config::default();
    config.delivery.poll_interval = Duration::from_millis(100);
    let (total_calls, mut total_called) = unbounded_channel();
    let (archive_calls, mut archive_called) = unbounded_channel();
    let outbox = Outbox::builder(pool.clone())
        .config(config)
        .state(Calls { total: total_calls, archive: archive_calls })
        .handlers(handlers![total, archive])
        .build()
        .await?;
    outbox.migrate().await?;

    // Scheduled in few statements, and before anybody delivers: the calls are as large as they may be.
    let reading = |hour| ["attic", "barn"].map(|meter| Reading { meter: meter.to_owned(), hour });
    let readings: Vec<Reading> = (1..=10).flat_map(reading).collect();
    outbox.transaction(async |tx| outbox.schedule_all(tx, &readings).await).await?;
    let running = outbox.start().await?;

    println!("{}", archive_called.recv().await.ok_or("the handlers are gone")?);
    for _ in 1..=4 {
        println!("{}", total_called.recv().await.ok_or("the handlers are gone")?);
    }
    running.shutdown().await;
    Ok(())
}
