//! A service function on PostgreSQL: it writes its row and schedules an event in one transaction.
//!
//! ```text
//! cargo run --example transaction -- postgres://user:password@host/database
//! ```
//!
//! The commit is what counts. An order that fails after it has scheduled its event is rolled back, and
//! nobody hears of it; one that commits is delivered. The tables live in a schema that is dropped at
//! the end. Prints what the service returned and what was delivered.
#![allow(clippy::print_stdout)]

use std::{error::Error, str::FromStr, time::Duration};

use keylane::{
    Config, Outbox, OutboxEvent, ScheduleError, State, handlers, outbox_handler,
    sqlx::{self, AssertSqlSafe, PgPool, Postgres, postgres::PgConnectOptions},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, error::SendError, unbounded_channel};

#[derive(Clone, Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "customer-{customer}")]
struct OrderPlaced {
    customer: String,
    goods: String,
}

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("{0} is sold out")]
    SoldOut(String),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

/// What a web framework would hold as its state.
struct Shop {
    pool: PgPool,
    outbox: Outbox<Postgres>,
}

impl Shop {
    /// The service function. Any way out before the commit rolls everything back.
    async fn place(&self, customer: &str, goods: &str) -> Result<(), OrderError> {
        let event = OrderPlaced { customer: customer.to_owned(), goods: goods.to_owned() };
        let mut tx = self.pool.begin().await?;
        let row = sqlx::query("INSERT INTO customer_order VALUES ($1, $2)").bind(customer).bind(goods);
        row.execute(&mut *tx).await?;
        self.outbox.schedule(&mut tx, &event).await?;
        let take =
            sqlx::query("UPDATE stock SET count = count - 1 WHERE goods = $1 AND count > 0").bind(goods);
        if take.execute(&mut *tx).await?.rows_affected() == 0 {
            return Err(OrderError::SoldOut(goods.to_owned()));
        }
        tx.commit().await?;
        self.outbox.wake();
        Ok(())
    }
}

#[outbox_handler(id = "mailer")]
async fn confirm(
    order: OrderPlaced,
    State(mails): State<UnboundedSender<OrderPlaced>>,
) -> Result<(), SendError<OrderPlaced>> {
    mails.send(order)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).or_else(|| std::env::var("KEYLANE_TEST_POSTGRES_URL").ok());
    let url = url.ok_or("usage: transaction postgres://user:password@host/database")?;
    let schema = format!("example_transaction_{}", std::process::id());
    let options = PgConnectOptions::from_str(&url)?.options([("search_path", &schema)]);
    let pool = PgPool::connect_with(options).await?;
    sqlx::query(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&pool).await?;
    let shown = show(&pool).await;
    sqlx::query(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(&pool).await?;
    shown
}

async fn show(pool: &PgPool) -> Result<(), Box<dyn Error>> {
    sqlx::raw_sql(
        "CREATE TABLE stock (goods text PRIMARY KEY, count integer NOT NULL);
         CREATE TABLE customer_order (customer text NOT NULL, goods text NOT NULL);
         INSERT INTO stock VALUES ('chair', 5), ('lamp', 1)",
    )
    .execute(pool)
    .await?;
    let mut config = Config::default();
    config.delivery.poll_interval = Duration::from_millis(100);
    let (mails, mut sent) = unbounded_channel::<OrderPlaced>();
    let outbox = Outbox::builder(pool.clone())
        .config(config)
        .state(mails)
        .handlers(handlers![confirm])
        .build()
        .await?;
    outbox.migrate().await?;
    let running = outbox.start().await?;

    let shop = Shop { pool: pool.clone(), outbox };
    for goods in ["lamp", "lamp", "chair"] {
        match shop.place("ann", goods).await {
            Ok(()) => println!("ann orders a {goods}: placed"),
            Err(error) => println!("ann orders a {goods}: {error}"),
        }
    }
    // One customer's mails come in order: a second lamp would be seen before the chair.
    for _ in 1..=2 {
        let order = sent.recv().await.ok_or("the handler is gone")?;
        println!("mail to {}: your {} is on its way", order.customer, order.goods);
    }
    running.shutdown().await;
    Ok(())
}
