//! A sink: every record of the outbox goes on to a broker, which goes away in the middle.
//!
//! The relay is a generic batch handler. It knows no event type: it takes records of all types and keys, many
//! per call, and hands their payloads on as they are stored. When the broker is away, it returns "unavailable"
//! for the rest of the call: no attempt counts, and each key waits where it stands. Prints what the broker got.
#![allow(clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    error::Error,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use keylane::{
    BatchResults, Config, HandlerError, Observer, Outbox, RawEvent, Record, RecordTypes, Registration,
    ScheduleOptions, Signal,
    handler::GenericBatchHandler,
    sqlx::{SqlitePool, sqlite::SqliteConnectOptions},
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// How long a key waits before the broker is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Plays the client of a broker. It takes some messages, and then it is away until it is started again.
#[derive(Clone, Default)]
struct Broker(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    messages: Vec<Message>,
    room: usize,
}

struct Message {
    key: String,
    text: String,
    attempt: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("the broker closed the connection")]
struct Away;

impl Broker {
    async fn publish(&self, message: Message) -> Result<(), Away> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.room = log.room.checked_sub(1).ok_or(Away)?;
        log.messages.push(message);
        Ok(())
    }

    fn start(&self, room: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).room = room;
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).messages.len()
    }

    /// The texts of each key in the order in which they came, and the greatest number of an attempt.
    fn read(&self) -> (BTreeMap<String, Vec<String>>, u32) {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for message in &log.messages {
            by_key.entry(message.key.clone()).or_default().push(message.text.clone());
        }
        (by_key, log.messages.iter().map(|message| message.attempt).max().unwrap_or_default())
    }
}

struct Relay(Broker);

impl GenericBatchHandler for Relay {
    async fn handle(&self, records: &[&Record]) -> BatchResults {
        let mut results = BatchResults::new();
        for record in records {
            // A consumer drops what it has seen by the event id: a crash here repeats what was under way.
            let message = Message {
                key: record.delivery.key.to_string(),
                text: String::from_utf8_lossy(&record.payload).into_owned(),
                attempt: record.delivery.attempt,
            };
            match self.0.publish(message).await {
                Ok(()) => results.push(Ok(())),
                // Nothing of any key goes on behind the first that has failed.
                Err(Away) => {
                    results.resize_with(records.len(), || Err(HandlerError::new(Away).uncounted(PAUSE)));
                    break;
                }
            }
        }
        results
    }
}

/// Tells `main` what the workers say.
struct Signals(UnboundedSender<Signal>);

impl Observer for Signals {
    fn on(&self, signal: &Signal) {
        let _ = self.0.send(signal.clone());
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("keylane-sink-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let shown = show(&dir).await;
    std::fs::remove_dir_all(&dir)?;
    shown
}

async fn show(dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = SqliteConnectOptions::new().filename(dir.join("sink.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(file).await?;
    let mut config = Config::default();
    config.delivery.poll_interval = Duration::from_millis(100);
    let broker = Broker::default();
    let (sender, mut signals) = unbounded_channel();
    let outbox = Outbox::builder(pool)
        .config(config)
        .handler(Registration::generic_batch("relay", RecordTypes::all(), 100, Relay(broker.clone())))
        .observer(Signals(sender))
        .build()
        .await?;
    outbox.migrate().await?;

    outbox
        .transaction(async |tx| {
            for number in 1..=8 {
                for sensor in ["attic", "barn", "cellar"] {
                    let event = RawEvent::new("sensor.read", sensor, number.to_string());
                    outbox.schedule_raw(tx, event, ScheduleOptions::new()).await?;
                }
            }
            Ok::<_, keylane::ScheduleError>(())
        })
        .await?;
    broker.start(10);
    let running = outbox.start().await?;
    while !matches!(signals.recv().await.ok_or("the workers are gone")?, Signal::TargetUnavailable { .. }) {}
    println!("the broker went away after {} messages", broker.count());

    broker.start(usize::MAX);
    while broker.count() < 24 {
        signals.recv().await.ok_or("the workers are gone")?;
    }
    running.shutdown().await;
    let (by_key, attempt) = broker.read();
    by_key.iter().for_each(|(key, texts)| println!("{key}: {}", texts.join(" ")));
    println!("greatest attempt: {attempt}");
    Ok(())
}
