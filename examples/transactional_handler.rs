//! A handler that writes into the outbox's own database, exactly once.
//!
//! It is given the transaction in which the record is completed: what it writes and the completion
//! are committed together, or not at all. Here its first attempt books the money and then fails, the
//! second one panics after it has booked; the third succeeds. Prints the attempts and the balance,
//! which has grown once.
#![allow(clippy::print_stdout, clippy::panic)]

use std::{error::Error, path::Path, time::Duration};

use keylane::{
    Config, Delivery, HandlerError, Outbox, OutboxEvent, State, handlers, outbox_handler,
    sqlx::{self, SqliteConnection, SqlitePool, sqlite::SqliteConnectOptions},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "money.received", key = "account-{account}")]
struct MoneyReceived {
    account: String,
    amount: i64,
}

#[outbox_handler(id = "account", transactional, retry(fixed, delay = "20ms", max_retries = 3))]
async fn book(
    event: MoneyReceived,
    tx: &mut SqliteConnection,
    delivery: &Delivery,
    State(balances): State<UnboundedSender<(u32, i64)>>,
) -> Result<(), HandlerError> {
    sqlx::query("UPDATE account SET balance = balance + ? WHERE name = ?")
        .bind(event.amount)
        .bind(&event.account)
        .execute(&mut *tx)
        .await?;
    let balance = sqlx::query_scalar("SELECT balance FROM account WHERE name = ?");
    let balance = balance.bind(&event.account).fetch_one(tx).await?;
    balances.send((delivery.attempt, balance))?;
    match delivery.attempt {
        1 => Err(HandlerError::new("the connection to the printer was lost")),
        2 => panic!("out of paper"),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    std::panic::set_hook(Box::new(|_| {})); // the panic is meant
    let dir = std::env::temp_dir().join(format!("keylane-transactional-handler-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let shown = show(&dir).await;
    std::fs::remove_dir_all(&dir)?;
    shown
}

async fn show(dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = SqliteConnectOptions::new().filename(dir.join("bank.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(file).await?;
    sqlx::raw_sql("CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL)")
        .execute(&pool)
        .await?;
    sqlx::raw_sql("INSERT INTO account VALUES ('ann', 0)").execute(&pool).await?;

    let mut config = Config::default();
    config.delivery.poll_interval = Duration::from_millis(100);
    let (balances, mut seen) = unbounded_channel::<(u32, i64)>();
    let outbox = Outbox::builder(pool.clone())
        .config(config)
        .state(balances)
        .handlers(handlers![book])
        .build()
        .await?;
    outbox.migrate().await?;
    let running = outbox.start().await?;

    let event = MoneyReceived { account: "ann".to_owned(), amount: 100 };
    outbox.transaction(async |tx| outbox.schedule(tx, &event).await).await?;

    for _ in 1..=3 {
        let (attempt, balance) = seen.recv().await.ok_or("the handler is gone")?;
        println!("attempt {attempt}: sees a balance of {balance} in its transaction");
    }
    // Ends when the last transaction has been committed.
    running.shutdown().await;
    let balance: i64 = sqlx::query_scalar("SELECT balance FROM account").fetch_one(&pool).await?;
    println!("at the end: {balance}");
    Ok(())
}
