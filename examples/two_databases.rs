//! Two outboxes in one process, each in a database of its own: there is no global state.
//!
//! The shop's handler hands each order over to the warehouse: it schedules an event in the other
//! database, with the id of the order's event as dedup key, because it may be called twice for one
//! order. Here it fails once after it has done so. Prints the calls: the warehouse packs once.
#![allow(clippy::print_stdout)]

use std::{error::Error, path::Path, time::Duration};

use keylane::{
    Config, Delivery, HandlerError, Outbox, OutboxEvent, ScheduleOptions, State, handlers, outbox_handler,
    sqlx::{Sqlite, SqlitePool, sqlite::SqliteConnectOptions},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "customer-{customer}")]
struct OrderPlaced {
    customer: String,
    goods: String,
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "parcel.wanted", key = "shelf-{goods}")]
struct ParcelWanted {
    goods: String,
}

/// What was done, told to `main`.
type Lines = UnboundedSender<String>;

#[outbox_handler(id = "hand-over", retry(fixed, delay = "20ms", max_retries = 3))]
async fn hand_over(
    order: OrderPlaced,
    delivery: &Delivery,
    State(warehouse): State<Outbox<Sqlite>>,
    State(lines): State<Lines>,
) -> Result<(), HandlerError> {
    let parcel = ParcelWanted { goods: order.goods };
    let options = ScheduleOptions::new().dedup_key(delivery.event_id.to_string());
    let scheduled =
        warehouse.transaction(async |tx| warehouse.schedule_with(tx, &parcel, options).await).await?;
    let text = if scheduled.duplicate { "was handed over before" } else { "handed over" };
    lines.send(format!("shop: {}, attempt {}: {text}", parcel.goods, delivery.attempt))?;
    match (parcel.goods.as_str(), delivery.attempt) {
        ("lamp", 1) => Err(HandlerError::new("the answer was lost")),
        _ => Ok(()),
    }
}

#[outbox_handler(id = "pack")]
async fn pack(parcel: ParcelWanted, State(lines): State<Lines>) -> Result<(), HandlerError> {
    Ok(lines.send(format!("warehouse: {} packed", parcel.goods))?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("keylane-two-databases-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let shown = show(&dir).await;
    std::fs::remove_dir_all(&dir)?;
    shown
}

async fn show(dir: &Path) -> Result<(), Box<dyn Error>> {
    let open = |name| {
        SqlitePool::connect_with(SqliteConnectOptions::new().filename(dir.join(name)).create_if_missing(true))
    };
    let mut config = Config::default();
    config.delivery.poll_interval = Duration::from_millis(100);
    let (shop_lines, mut shop_done) = unbounded_channel();
    let (warehouse_lines, mut warehouse_done) = unbounded_channel();

    let warehouse = Outbox::builder(open("warehouse.db").await?)
        .config(config.clone())
        .state::<Lines>(warehouse_lines)
        .handlers(handlers![pack])
        .build()
        .await?;
    let shop = Outbox::builder(open("shop.db").await?)
        .config(config)
        .state(warehouse.clone())
        .state::<Lines>(shop_lines)
        .handlers(handlers![hand_over])
        .build()
        .await?;
    warehouse.migrate().await?;
    shop.migrate().await?;
    let (shop_running, warehouse_running) = tokio::try_join!(shop.start(), warehouse.start())?;

    let order = |goods: &str| OrderPlaced { customer: "ann".to_owned(), goods: goods.to_owned() };
    let orders = ["chair", "lamp", "table"].map(order);
    shop.transaction(async |tx| shop.schedule_all(tx, &orders).await).await?;

    for _ in 1..=4 {
        println!("{}", shop_done.recv().await.ok_or("the shop is gone")?);
    }
    // Goods of different shelves are packed in any order.
    let mut packed = Vec::new();
    for _ in &orders {
        packed.push(warehouse_done.recv().await.ok_or("the warehouse is gone")?);
    }
    packed.sort();
    packed.iter().for_each(|line| println!("{line}"));
    tokio::join!(shop_running.shutdown(), warehouse_running.shutdown());
    assert!(warehouse_done.try_recv().is_err(), "packed once more");
    Ok(())
}
