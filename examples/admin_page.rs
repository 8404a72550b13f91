//! A page for the people who look after an outbox, and what they do on it.
//!
//! The page stands on `Outbox::admin` alone: it needs no handlers and no workers, so it may be part of another
//! process. Here an invoice has failed because its customer had no address. The page shows it; the address is
//! entered, "retry" is pressed, and the page shows that nothing is amiss. Prints the page before and after.
#![allow(clippy::print_stdout)]

use std::{error::Error, fmt::Write, path::Path, time::Duration};

use keylane::{
    Config, HandlerError, Outbox, OutboxEvent, State, StoreError,
    admin::{Admin, Filter, Status, Step},
    handlers, outbox_handler,
    sqlx::{SqlitePool, sqlite::SqliteConnectOptions},
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Rows of each list on the page; the next page begins after the id of the last row.
const ROWS: usize = 20;

/// What `GET /outbox` answers in any web framework.
async fn page(admin: &Admin) -> Result<String, Box<dyn Error>> {
    let mut page = String::new();
    let owned = admin.partitions().await?.iter().filter(|partition| partition.owner.is_some()).count();
    writeln!(page, "{owned} of 256 partitions have an owner")?;
    for instance in admin.instances(ROWS).await? {
        writeln!(page, "instance {}: {} partitions", instance.name, instance.partitions)?;
    }
    for stopped in admin.stopped_lanes(&Filter::all(), 0, ROWS).await? {
        let (lane, held) = (&stopped.lane, stopped.held);
        writeln!(page, "{} of {} is {}: {held} more wait", lane.key, lane.handler, stopped.reason)?;
    }
    for record in admin.failed(&Filter::all(), 0, ROWS).await? {
        let (error, payload) = (record.last_error.unwrap_or_default(), record.payload);
        writeln!(page, "failed: {} after {} attempts: {error}", record.record_type, record.attempts)?;
        writeln!(page, "  payload {}", String::from_utf8_lossy(&payload))?;
    }
    Ok(page)
}

/// What `POST /outbox/retry?handler=…` does: a hundred records per step, so that no request takes long.
async fn retry(admin: &Admin, handler: &str) -> Result<usize, StoreError> {
    let (mut changed, mut after) = (0, Some(0));
    while let Some(from) = after {
        let Step { changed: of_step, next, .. } =
            admin.retry_all(&Filter::all().handler(handler), from).await?;
        (changed, after) = (changed + of_step, next);
    }
    Ok(changed)
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "invoice.written", key = "customer-{customer}")]
struct InvoiceWritten {
    customer: String,
    number: u32,
}

#[outbox_handler(id = "post", retry(never))]
async fn send(_: InvoiceWritten, State(address): State<watch::Receiver<bool>>) -> Result<(), HandlerError> {
    if *address.borrow() { Ok(()) } else { Err(HandlerError::new("the customer has no address")) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("keylane-admin-page-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let shown = show(&dir).await;
    std::fs::remove_dir_all(&dir)?;
    shown
}

async fn show(dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = SqliteConnectOptions::new().filename(dir.join("invoices.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(file).await?;
    let mut config = Config::default();
    config.delivery.poll_interval = Duration::from_millis(100);
    config.cluster.instance_name = Some("shop-1".to_owned());
    let (enter, address) = watch::channel(false);
    let builder = Outbox::builder(pool).config(config).state(address).handlers(handlers![send]);
    let outbox = builder.build().await?;
    outbox.migrate().await?;
    let running = outbox.start().await?;

    let invoices = [1, 2, 3].map(|number| InvoiceWritten { customer: "ann".to_owned(), number });
    outbox.transaction(async |tx| outbox.schedule_all(tx, &invoices).await).await?;
    let admin = outbox.admin();
    while admin.counts().await?.of(Status::Held) < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    print!("{}", page(&admin).await?);

    enter.send(true)?;
    println!("-- the address is entered, {} record is retried", retry(&admin, "post").await?);
    while admin.counts().await?.records.iter().any(|(_, count)| *count > 0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    print!("{}", page(&admin).await?);
    running.shutdown().await;
    Ok(())
}
