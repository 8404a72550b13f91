//! A worker process: joins the cluster of a database and writes what its handlers do to a journal.
//!
//! `keylane-worker URL PREFIX JOURNAL MODE`, MODE `plain`, `transactional` or `deadly`, or one of them in claimed
//! mode: `claimed`, `claimed-transactional`, `claimed-deadly`; `steady` is `plain` with a long lease. Prints `ready`,
//! shuts down gracefully at a line `stop` on its input, and ends when its input closes. MODE `migrate` brings the tables
//! to the version of this build, and ends.

#![allow(clippy::print_stdout, reason = "the protocol with the test")]

use std::{error::Error, path::PathBuf, sync::Arc, time::Duration};

use keylane::{
    Delivery, Handler, HandlerError, Outbox, Registration, RetryPolicy, TransactionalHandler,
    database::{Database, Pool},
    sqlx::sqlite::SqliteConnectOptions,
    sqlx::{self, MySqlPool, PgPool, SqlitePool},
};
use keylane_checker::{CallKind, End};
use keylane_cluster_tests::{
    event::{DEADLY, Step},
    journal::{Calls, Identity},
    settings,
};
use tokio::io::{AsyncBufReadExt, BufReader};

/// How long a handler call takes.
const WORK: Duration = Duration::from_millis(2);

struct Plain(Arc<Calls>);

impl Handler for Plain {
    type Event = Step;

    async fn handle(&self, _: Step, delivery: &Delivery) -> Result<(), HandlerError> {
        let call = self.0.begin(CallKind::Single, delivery)?;
        tokio::time::sleep(WORK).await;
        Ok(call.end(&[End::Ok])?)
    }
}

/// The handler that ends its process at the first step of one key.
struct Deadly(Plain);

impl Handler for Deadly {
    type Event = Step;

    async fn handle(&self, event: Step, delivery: &Delivery) -> Result<(), HandlerError> {
        if (event.key, event.step) == DEADLY {
            let _call = self.0.0.begin(CallKind::Single, delivery)?;
            std::process::abort();
        }
        self.0.handle(event, delivery).await
    }
}

/// Writes an effect row in the transaction of the completion. No constraint forbids a second row, so a second
/// effect shows.
struct InTransaction {
    calls: Arc<Calls>,
    insert: String,
}

macro_rules! transactional {
    ($database:ty) => {
        impl TransactionalHandler<$database> for InTransaction {
            type Event = Step;

            async fn handle(
                &self,
                event: Step,
                tx: &mut <$database as Database>::Connection,
                delivery: &Delivery,
            ) -> Result<(), HandlerError> {
                let call = self.calls.begin(CallKind::Transactional, delivery)?;
                let insert = sqlx::query(sqlx::AssertSqlSafe(self.insert.clone()));
                insert.bind(i64::from(event.key)).bind(i64::from(event.step)).execute(tx).await?;
                tokio::time::sleep(WORK).await;
                Ok(call.end(&[End::Ok])?)
            }
        }
    };
}

transactional!(sqlx::Postgres);
transactional!(sqlx::MySql);
transactional!(sqlx::Sqlite);

async fn work<P>(
    pool: P,
    prefix: &str,
    journal: PathBuf,
    mode: &str,
    insert: &str,
) -> Result<(), Box<dyn Error>>
where
    P: Pool,
    P::Database: Database<Pool = P>,
    InTransaction: TransactionalHandler<P::Database, Event = Step>,
{
    if mode == "migrate" {
        Outbox::builder(pool).config(settings::config(prefix)).build().await?.migrate().await?;
        return Ok(());
    }
    let calls = Arc::new(Calls::open(&journal)?);
    let identity = Identity(Arc::clone(&calls));
    let handler = match mode {
        "transactional" | "claimed-transactional" => {
            let insert = format!("INSERT INTO {prefix}effect (k, step) VALUES {insert}");
            Registration::transactional::<P::Database, _>("worker", InTransaction { calls, insert })
        }
        "deadly" | "claimed-deadly" => Registration::typed("worker", Deadly(Plain(calls))),
        _ => Registration::typed("worker", Plain(calls)),
    };
    let retry = RetryPolicy::fixed(Duration::from_millis(50)).max_retries(1000);
    let config = match mode {
        "steady" => settings::steady(prefix),
        _ if mode.starts_with("claimed") => settings::claimed(prefix),
        _ => settings::config(prefix),
    };
    let outbox =
        Outbox::builder(pool).config(config).observer(identity).handler(handler.retry(retry)).build().await?;
    let running = outbox.start().await?;
    println!("ready {}", running.instance());
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    match input.next_line().await? {
        Some(line) if line == "stop" => {
            let report = running.shutdown().await;
            println!("stopped {}", if report.graceful { "graceful" } else { "forced" });
        }
        _ => drop(running),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let filter = tracing_subscriber::EnvFilter::new("keylane=info");
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, prefix, journal, mode] = arguments.as_slice() else {
        return Err("usage: keylane-worker URL PREFIX JOURNAL MODE".into());
    };
    let journal = PathBuf::from(journal);
    match url.split(':').next() {
        Some("postgres") => work(PgPool::connect_lazy(url)?, prefix, journal, mode, "($1, $2)").await,
        Some("mysql") => work(MySqlPool::connect_lazy(url)?, prefix, journal, mode, "(?, ?)").await,
        _ => {
            let options: SqliteConnectOptions = url.parse()?;
            let options = options.busy_timeout(Duration::from_secs(5));
            work(SqlitePool::connect_lazy_with(options), prefix, journal, mode, "(?, ?)").await
        }
    }
}
