//! The first step: an event is scheduled in a transaction, and its handler greets.
#![allow(clippy::print_stdout)]

use std::error::Error;

use keylane::{
    Outbox, OutboxEvent, State, handlers, outbox_handler,
    sqlx::{SqlitePool, sqlite::SqliteConnectOptions},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, error::SendError, unbounded_channel};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "guest.arrived", key = "guest-{name}")]
struct GuestArrived {
    name: String,
}

#[outbox_handler(id = "greeter")]
async fn greet(
    guest: GuestArrived,
    State(host): State<UnboundedSender<String>>,
) -> Result<(), SendError<String>> {
    host.send(format!("hello, {}", guest.name))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("keylane-hello-{}.db", std::process::id()));
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    let (host, mut greetings) = unbounded_channel::<String>();
    let outbox = Outbox::builder(pool.clone()).state(host).handlers(handlers![greet]).build().await?;
    outbox.migrate().await?;
    let running = outbox.start().await?;

    let mut tx = pool.begin().await?;
    // Your own statements go here.
    outbox.schedule(&mut tx, &GuestArrived { name: "Ada".to_owned() }).await?;
    tx.commit().await?;
    outbox.wake();

    println!("{}", greetings.recv().await.unwrap_or_default());
    running.shutdown().await;
    std::fs::remove_file(file)?;
    Ok(())
}
