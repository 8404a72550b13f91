//! Keys that stand still because a record has failed for good, and the three ways on.
//!
//! The first letter to each of three people cannot be delivered; later letters to them wait, letters
//! to others do not. A person looks at the list and decides for each: try again (the cause is
//! fixed), replace the payload (it was wrong), or discard (it no longer matters). Then what waited is
//! delivered as well. Prints the list and, by key, what was delivered.
#![allow(clippy::print_stdout)]

use std::{collections::BTreeMap, error::Error, path::Path, time::Duration};

use keylane::{
    Config, HandlerError, Observer, Outbox, OutboxEvent, Signal, State,
    admin::{Filter, StoppedLane},
    handlers, outbox_handler,
    sqlx::SqlitePool,
    sqlx::sqlite::SqliteConnectOptions,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "letter.written", key = "{to}")]
struct Letter {
    to: String,
    street: String,
    text: String,
}

/// What the handler shares with `main`.
#[derive(Clone)]
struct Post {
    bridge_open: watch::Receiver<bool>,
    delivered: mpsc::UnboundedSender<Letter>,
}

#[outbox_handler(id = "post", retry(never))]
async fn deliver(letter: Letter, State(post): State<Post>) -> Result<(), HandlerError> {
    match letter.street.as_str() {
        "River Road" if !*post.bridge_open.borrow() => Err(HandlerError::new("the bridge is closed")),
        "Rivver Road" => Err(HandlerError::new("no such street")),
        "Sea View" => Err(HandlerError::new("the house is gone")),
        _ => Ok(post.delivered.send(letter)?),
    }
}

/// Tells `main` whenever outcomes have been written to the database.
struct Written(watch::Sender<usize>);

impl Observer for Written {
    fn on(&self, signal: &Signal) {
        if let Signal::Settled { records } = signal {
            self.0.send_modify(|written| *written += records);
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("keylane-blocked-keys-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let shown = show(&dir).await;
    std::fs::remove_dir_all(&dir)?;
    shown
}

async fn show(dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = SqliteConnectOptions::new().filename(dir.join("post.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(file).await?;
    let mut config = Config::default();
    config.delivery.poll_interval = Duration::from_millis(100);
    let (bridge, bridge_open) = watch::channel(false);
    let (delivered, mut arrived) = mpsc::unbounded_channel();
    let (written, mut changes) = watch::channel(0);
    let outbox = Outbox::builder(pool)
        .config(config)
        .state(Post { bridge_open, delivered })
        .handlers(handlers![deliver])
        .observer(Written(written))
        .build()
        .await?;
    outbox.migrate().await?;
    let running = outbox.start().await?;

    let letter = |to: &str, street: &str, text: &str| Letter {
        to: to.into(),
        street: street.into(),
        text: text.into(),
    };
    let mut letters = Vec::new();
    for (to, street) in
        [("ann", "River Road"), ("bob", "Rivver Road"), ("cid", "Sea View"), ("dora", "Hill Street")]
    {
        letters.push(letter(to, street, "come to tea"));
        letters.push(letter(to, "Hill Street", "thank you for coming"));
    }
    outbox.transaction(async |tx| outbox.schedule_all(tx, &letters).await).await?;

    let mut lanes: Vec<StoppedLane> = Vec::new();
    while lanes.len() < 3 || lanes.iter().any(|lane| lane.held < 1) {
        changes.changed().await?;
        lanes = outbox.admin().stopped_lanes(&Filter::all(), 0, 10).await?;
    }
    for lane in &lanes {
        let error = lane.last_error.as_deref().unwrap_or_default();
        println!("{} is {}: {error}; {} more to deliver", lane.lane.key, lane.reason, lane.held);
    }
    bridge.send(true)?;
    outbox.admin().retry(lanes[0].record).await?;
    let corrected = letter("bob", "River Road", "come to tea");
    outbox.admin().replace_payload(lanes[1].record, serde_json::to_vec(&corrected)?).await?;
    outbox.admin().discard(lanes[2].record).await?;

    let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for _ in 1..letters.len() {
        let Letter { to, street, text } = arrived.recv().await.ok_or("the handler is gone")?;
        by_key.entry(to).or_default().push(format!("{text:?} to {street}"));
    }
    by_key.iter().for_each(|(to, texts)| println!("{to} got {}", texts.join(", then ")));
    running.shutdown().await;
    Ok(())
}
