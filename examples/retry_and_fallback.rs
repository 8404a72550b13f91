//! What becomes of a record whose handler fails.
//!
//! A customer makes four payments. The bank does not answer twice at the second one: it is retried,
//! and the later payments of this customer wait. The card of the third one is stolen, which no retry
//! can fix: the fallback handler takes it. Prints each call in order.
#![allow(clippy::print_stdout)]

use std::{error::Error, path::Path, time::Duration};

use keylane::{
    ClassifiedError, Config, Delivery, Failure, Outbox, OutboxEvent, State, handlers,
    outbox_fallback_handler, outbox_handler,
    sqlx::{SqlitePool, sqlite::SqliteConnectOptions},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "payment.ordered", key = "customer-{customer}")]
struct Payment {
    customer: String,
    number: u32,
}

#[derive(Debug, thiserror::Error)]
enum BankError {
    #[error("the bank does not answer")]
    Silent,
    #[error("the card is stolen")]
    Stolen,
}

/// The macros find out that the error says how it wants to be retried.
impl ClassifiedError for BankError {
    fn class(&self) -> Option<&'static str> {
        matches!(self, Self::Silent).then_some("silent")
    }

    fn is_permanent(&self) -> bool {
        matches!(self, Self::Stolen)
    }
}

/// The printed lines, told to `main`, which waits for the last one.
type Lines = UnboundedSender<String>;

#[outbox_handler(id = "bank", retry(exponential, initial = "20ms", max_retries = 3, retry_on = ["silent"]))]
async fn charge(payment: Payment, delivery: &Delivery, State(lines): State<Lines>) -> Result<(), BankError> {
    let (number, attempt) = (payment.number, delivery.attempt);
    let result = match (number, attempt) {
        (2, 1 | 2) => Err(BankError::Silent),
        (3, _) => Err(BankError::Stolen),
        _ => Ok(()),
    };
    let text = result.as_ref().map_or_else(BankError::to_string, |()| "charged".to_owned());
    let _ = lines.send(format!("payment {number}, attempt {attempt}: {text}"));
    result
}

#[outbox_fallback_handler(of = "bank")]
async fn call_customer(
    payment: Payment,
    failure: &Failure,
    State(lines): State<Lines>,
) -> Result<(), BankError> {
    let Failure { attempts, error, .. } = failure;
    let _ = lines
        .send(format!("payment {}, fallback after {attempts} attempt: call them, {error}", payment.number));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("keylane-retry-and-fallback-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let shown = show(&dir).await;
    std::fs::remove_dir_all(&dir)?;
    shown
}

async fn show(dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = SqliteConnectOptions::new().filename(dir.join("payments.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(file).await?;
    let mut config = Config::default();
    config.delivery.poll_interval = Duration::from_millis(100);
    let (lines, mut printed) = unbounded_channel::<String>();
    let outbox = Outbox::builder(pool.clone())
        .config(config)
        .state(lines)
        .handlers(handlers![charge, call_customer])
        .build()
        .await?;
    outbox.migrate().await?;
    let running = outbox.start().await?;

    let mut tx = pool.begin().await?;
    for number in 1..=4 {
        outbox.schedule(&mut tx, &Payment { customer: "ann".to_owned(), number }).await?;
    }
    tx.commit().await?;
    outbox.wake();

    for _ in 1..=7 {
        println!("{}", printed.recv().await.ok_or("the handlers are gone")?);
    }
    running.shutdown().await;
    Ok(())
}
