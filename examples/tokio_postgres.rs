//! A service that speaks to PostgreSQL by tokio-postgres: it writes its row and the event by that, and the workers
//! deliver.
//!
//! ```text
//! cargo run --example tokio_postgres -- postgres://user:password@host/database
//! ```
//!
//! `Outbox::statements` gives the texts and values that `Outbox::schedule` would send. The service runs them in its
//! own transaction; how it does so with Diesel or SeaORM differs in `write` only. The tables live in a schema that is
//! dropped at the end. Prints what was scheduled and what was delivered.
#![allow(clippy::print_stdout)]

use std::{error::Error, str::FromStr, time::Duration};

use keylane::{
    Config, Outbox, OutboxEvent, ScheduleOptions, State, handlers, outbox_handler,
    sql::{Statements, Value},
    sqlx::{self, AssertSqlSafe, PgPool, Postgres, postgres::PgConnectOptions},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, error::SendError, unbounded_channel};
use tokio_postgres::{Client, NoTls, Transaction, types::ToSql};

#[derive(Clone, Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "order-{id}")]
struct OrderPlaced {
    id: i64,
    goods: String,
}

#[outbox_handler(id = "mailer")]
async fn confirm(
    order: OrderPlaced,
    State(mails): State<UnboundedSender<OrderPlaced>>,
) -> Result<(), SendError<OrderPlaced>> {
    mails.send(order)
}

/// The service function: the row and its event, both or none. `request` names what the caller asked for, so that asking
/// twice places one order.
async fn place(
    client: &mut Client,
    outbox: &Outbox<Postgres>,
    order: &OrderPlaced,
    request: &str,
) -> Result<bool, Box<dyn Error>> {
    let statements = outbox.statements(order, ScheduleOptions::new().dedup_key(request)).await?;
    let tx = client.transaction().await?;
    if !write(&tx, &statements).await? {
        return Ok(false);
    }
    tx.execute("INSERT INTO customer_order VALUES ($1, $2)", &[&order.id, &order.goods]).await?;
    tx.commit().await?;
    outbox.wake();
    Ok(true)
}

/// Runs the statements in their order; false if the event is a duplicate.
async fn write(tx: &Transaction<'_>, statements: &Statements) -> Result<bool, Box<dyn Error>> {
    for statement in &statements.statements {
        let values = statement.values.iter().map(parameter).collect::<Result<Vec<_>, _>>()?;
        if statement.is_duplicate(tx.execute(&statement.text, &values).await?) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn parameter(value: &Value) -> Result<&(dyn ToSql + Sync), String> {
    Ok(match value {
        Value::Int(number) => number,
        Value::SmallInt(number) => number,
        Value::Text(text) => text,
        Value::Bytes(bytes) => bytes,
        Value::Uuid(uuid) => uuid,
        Value::Null => &None::<String>,
        other => return Err(format!("{other:?} is newer than this service")),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).or_else(|| std::env::var("KEYLANE_TEST_POSTGRES_URL").ok());
    let url = url.ok_or("usage: tokio_postgres postgres://user:password@host/database")?;
    let schema = format!("example_tokio_postgres_{}", std::process::id());
    let options = PgConnectOptions::from_str(&url)?.options([("search_path", &schema)]);
    let pool = PgPool::connect_with(options).await?;
    sqlx::query(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&pool).await?;
    let shown = show(&pool, &url, &schema).await;
    sqlx::query(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(&pool).await?;
    shown
}

async fn show(pool: &PgPool, url: &str, schema: &str) -> Result<(), Box<dyn Error>> {
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let connection = tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {schema}")).await?;
    client.batch_execute("CREATE TABLE customer_order (id bigint PRIMARY KEY, goods text NOT NULL)").await?;

    let mut config = Config::default();
    // What tokio-postgres commits, the outbox hears of by `wake`.
    config.delivery.poll_interval = Duration::from_secs(60);
    let (mails, mut sent) = unbounded_channel::<OrderPlaced>();
    let outbox = Outbox::builder(pool.clone())
        .config(config)
        .state(mails)
        .handlers(handlers![confirm])
        .build()
        .await?;
    outbox.migrate().await?;
    let running = outbox.start().await?;

    let order = OrderPlaced { id: 42, goods: "lamp".to_owned() };
    for _ in 1..=2 {
        match place(&mut client, &outbox, &order, "request-7").await? {
            true => println!("order {} of a {}: placed", order.id, order.goods),
            false => println!("order {} of a {}: placed before", order.id, order.goods),
        }
    }
    // The row is there already, so its event is rolled back with it.
    if place(&mut client, &outbox, &order, "request-8").await.is_err() {
        println!("order {} of a {}: refused", order.id, order.goods);
    }
    let mail = sent.recv().await.ok_or("the handler is gone")?;
    println!("mail: your {} is on its way", mail.goods);

    running.shutdown().await;
    println!("mails sent after that: {}", sent.len());
    drop(client);
    connection.await??;
    Ok(())
}
