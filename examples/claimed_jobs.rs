//! Claimed mode: jobs that need no order, worked on by two instances of one database.
//!
//! The jobs share one key. In partitioned mode one instance would do them one by one; here both instances
//! claim some, and a job that fails holds back no other.
#![allow(clippy::print_stdout)]

use std::{collections::BTreeSet, error::Error, path::Path, time::Duration};

use keylane::{
    Config, Delivery, HandlerError, Mode, Outbox, OutboxEvent, Running, State, handlers, outbox_handler,
    sqlx::{Sqlite, SqlitePool, sqlite::SqliteConnectOptions},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "thumbnail.wanted", key = "thumbnails", constant_key)]
struct ThumbnailWanted {
    picture: u32,
}

/// Where an instance tells `main` what it has done.
#[derive(Clone)]
struct Instance {
    name: &'static str,
    done: UnboundedSender<(&'static str, u32, u32)>,
}

/// The first attempt of picture 1 fails.
#[outbox_handler(id = "thumbnails", retry(fixed, delay = "2s"))]
async fn draw(
    job: ThumbnailWanted,
    delivery: &Delivery,
    State(instance): State<Instance>,
) -> Result<(), HandlerError> {
    if job.picture == 1 && delivery.attempt == 1 {
        return Err(HandlerError::new("the picture is still being uploaded"));
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(instance.done.send((instance.name, job.picture, delivery.attempt))?)
}

async fn instance(file: &Path, state: Instance) -> Result<(Outbox<Sqlite>, Running), Box<dyn Error>> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let mut config = Config::default();
    config.mode = Mode::Claimed;
    config.delivery.batch_size = 5;
    config.delivery.concurrency = 2;
    config.delivery.poll_interval = Duration::from_millis(50);
    let builder = Outbox::builder(SqlitePool::connect_with(options).await?).config(config);
    let outbox = builder.state(state).handlers(handlers![draw]).build().await?;
    outbox.migrate().await?;
    let running = outbox.start().await?;
    Ok((outbox, running))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("keylane-claimed-jobs-{}.db", std::process::id()));
    let (done, mut told) = unbounded_channel();
    let (outbox, first) = instance(&file, Instance { name: "first", done: done.clone() }).await?;
    let (_, second) = instance(&file, Instance { name: "second", done }).await?;

    let jobs: Vec<ThumbnailWanted> = (1..=60).map(|picture| ThumbnailWanted { picture }).collect();
    outbox.transaction(async |tx| outbox.schedule_all(tx, &jobs).await).await?;

    let (mut instances, mut pictures, mut last) = (BTreeSet::new(), BTreeSet::new(), (0, 0));
    while pictures.len() < jobs.len() {
        let (instance, picture, attempt) = told.recv().await.ok_or("the handlers are gone")?;
        assert!(pictures.insert(picture), "no job is done twice");
        instances.insert(instance);
        last = (picture, attempt);
    }
    println!("{} jobs of one key, done by the instances {instances:?}", pictures.len());
    println!("the last one was picture {}, in its attempt {}", last.0, last.1);
    first.shutdown().await;
    second.shutdown().await;
    std::fs::remove_file(file)?;
    Ok(())
}
