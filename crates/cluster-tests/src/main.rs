//! A worker process: joins the cluster of a database and writes what its handlers do to a ledger.
//!
//! `keylane-worker URL PREFIX LEDGER MODE`, MODE `plain`, `transactional` or `deadly`. Prints `ready`, obeys a
//! line `stop` on its input with a graceful shutdown, and ends when its input closes. MODE `migrate` brings the
//! tables to the version of this build, and ends.

#![allow(clippy::print_stdout, reason = "the protocol with the test")]

use std::{error::Error, path::PathBuf, sync::Arc, time::Duration};

use keylane::{
    Database, Delivery, Handler, HandlerError, Outbox, Registration, RetryPolicy, TransactionalHandler,
    database::Pool,
    sqlx::sqlite::SqliteConnectOptions,
    sqlx::{self, MySqlPool, PgPool, SqlitePool},
};
use keylane_cluster_tests::{
    event::{DEADLY, Step},
    ledger::Ledger,
    settings,
};
use tokio::io::{AsyncBufReadExt, BufReader};

/// How long a handler call takes.
const WORK: Duration = Duration::from_millis(2);

struct Plain(Arc<Ledger>);

impl Handler for Plain {
    type Event = Step;

    async fn handle(&self, event: Step, _: &Delivery) -> Result<(), HandlerError> {
        self.0.write(event.key, event.step, false)?;
        tokio::time::sleep(WORK).await;
        self.0.write(event.key, event.step, true)?;
        Ok(())
    }
}

/// Ends its process at the first step of one key.
struct Deadly(Plain);

impl Handler for Deadly {
    type Event = Step;

    async fn handle(&self, event: Step, delivery: &Delivery) -> Result<(), HandlerError> {
        if (event.key, event.step) == DEADLY {
            self.0.0.write(event.key, event.step, false)?;
            std::process::abort();
        }
        self.0.handle(event, delivery).await
    }
}

/// Writes an effect row in the transaction of the completion; nothing forbids a second one.
struct InTransaction {
    ledger: Arc<Ledger>,
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
                _: &Delivery,
            ) -> Result<(), HandlerError> {
                self.ledger.write(event.key, event.step, false)?;
                let insert = sqlx::query(sqlx::AssertSqlSafe(self.insert.clone()));
                insert.bind(i64::from(event.key)).bind(i64::from(event.step)).execute(tx).await?;
                tokio::time::sleep(WORK).await;
                self.ledger.write(event.key, event.step, true)?;
                Ok(())
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
    ledger: PathBuf,
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
    let ledger = Arc::new(Ledger::open(&ledger)?);
    let handler = match mode {
        "transactional" => {
            let insert = format!("INSERT INTO {prefix}effect (k, step) VALUES {insert}");
            Registration::transactional::<P::Database, _>("worker", InTransaction { ledger, insert })
        }
        "deadly" => Registration::typed("worker", Deadly(Plain(ledger))),
        _ => Registration::typed("worker", Plain(ledger)),
    };
    let retry = RetryPolicy::fixed(Duration::from_millis(50)).max_retries(1000);
    let outbox =
        Outbox::builder(pool).config(settings::config(prefix)).handler(handler.retry(retry)).build().await?;
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
    let [url, prefix, ledger, mode] = arguments.as_slice() else {
        return Err("usage: keylane-worker URL PREFIX LEDGER MODE".into());
    };
    let ledger = PathBuf::from(ledger);
    match url.split(':').next() {
        Some("postgres") => work(PgPool::connect_lazy(url)?, prefix, ledger, mode, "($1, $2)").await,
        Some("mysql") => work(MySqlPool::connect_lazy(url)?, prefix, ledger, mode, "(?, ?)").await,
        _ => {
            let options: SqliteConnectOptions = url.parse()?;
            let options = options.busy_timeout(Duration::from_secs(5));
            work(SqlitePool::connect_lazy_with(options), prefix, ledger, mode, "(?, ?)").await
        }
    }
}
