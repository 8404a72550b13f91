//! Scheduling from plain SQL on PostgreSQL: triggers, scripts, services in other languages.
//!
//! ```text
//! cargo run --example schedule_from_sql -- postgres://user:password@host/database
//! ```
//!
//! `outbox_schedule(record_type, record_key, payload)` is created by `migrate`. It runs in the caller's
//! transaction and puts the record into the same partition as the Rust side would, so that both keep
//! one order. Here a trigger schedules for each row, in turn with Rust. On MariaDB, MySQL and SQLite
//! the same is one INSERT; see `migrations/*/0002_schedule_from_sql.sql`. The tables live in a schema
//! that is dropped at the end. Prints what was delivered, and what the function refuses.
#![allow(clippy::print_stdout)]

use std::{error::Error, str::FromStr, time::Duration};

use keylane::{
    Config, Outbox, OutboxEvent, State, handlers, outbox_handler,
    sqlx::{self, AssertSqlSafe, PgPool, postgres::PgConnectOptions},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, error::SendError, unbounded_channel};

#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "price.changed", key = "goods-{goods}")]
struct PriceChanged {
    goods: String,
    cents: i64,
    by: String,
}

#[outbox_handler(id = "price-tags")]
async fn print_tag(
    event: PriceChanged,
    State(tags): State<UnboundedSender<PriceChanged>>,
) -> Result<(), SendError<PriceChanged>> {
    tags.send(event)
}

const TABLE_AND_TRIGGER: &str = "
    CREATE TABLE price (goods text PRIMARY KEY, cents bigint NOT NULL);
    CREATE FUNCTION price_changed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM outbox_schedule(
            'price.changed',
            'goods-' || NEW.goods,
            jsonb_build_object('goods', NEW.goods, 'cents', NEW.cents, 'by', 'trigger')
        );
        RETURN NEW;
    END $$;
    CREATE TRIGGER price_changed AFTER INSERT OR UPDATE ON price FOR EACH ROW EXECUTE FUNCTION price_changed();";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).or_else(|| std::env::var("KEYLANE_TEST_POSTGRES_URL").ok());
    let url = url.ok_or("usage: schedule_from_sql postgres://user:password@host/database")?;
    let schema = format!("example_schedule_from_sql_{}", std::process::id());
    let options = PgConnectOptions::from_str(&url)?.options([("search_path", &schema)]);
    let pool = PgPool::connect_with(options).await?;
    sqlx::query(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&pool).await?;
    let shown = show(&pool).await;
    sqlx::query(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(&pool).await?;
    shown
}

async fn show(pool: &PgPool) -> Result<(), Box<dyn Error>> {
    let mut config = Config::default();
    config.delivery.poll_interval = Duration::from_millis(100);
    let (tags, mut printed) = unbounded_channel();
    let outbox = Outbox::builder(pool.clone())
        .config(config)
        .state(tags)
        .handlers(handlers![print_tag])
        .build()
        .await?;
    outbox.migrate().await?;
    sqlx::raw_sql(TABLE_AND_TRIGGER).execute(pool).await?;
    // Lists the handlers in outbox_handler: that is how SQL knows who takes the event.
    let running = outbox.start().await?;

    sqlx::raw_sql("INSERT INTO price VALUES ('lamp', 4900)").execute(pool).await?;
    let event = PriceChanged { goods: "lamp".to_owned(), cents: 4500, by: "Rust".to_owned() };
    outbox.transaction(async |tx| outbox.schedule(tx, &event).await).await?;
    sqlx::raw_sql("UPDATE price SET cents = 3900 WHERE goods = 'lamp'").execute(pool).await?;

    // The next poll finds what other processes schedule, so nothing needs to wake this one.
    for _ in 1..=3 {
        let PriceChanged { goods, cents, by } = printed.recv().await.ok_or("the handler is gone")?;
        println!("{goods}: {cents} cents, scheduled by {by}");
    }
    for refused in [
        "SELECT outbox_schedule('price.chnged', 'goods-lamp', '{}')",
        "SELECT outbox_schedule('price.changed', '', '{}')",
    ] {
        if let Err(sqlx::Error::Database(error)) = sqlx::raw_sql(AssertSqlSafe(refused)).execute(pool).await {
            println!("refused: {}", error.message());
        }
    }
    running.shutdown().await;
    Ok(())
}
