//! `keylane bench`: the cost of the library on a database, beside references written by hand.
//!
//! Library and references run in one process, one after another. Their order changes with every run. The result is a
//! ratio within one run: median, minimum and maximum over the runs. Each run begins with freshly filled tables and ends
//! with a proof that the same work was done.
//!
//! The names of the tables begin with `keylane_bench_`; they are made at the start and dropped at the end, also
//! after an error or Ctrl-C.

#![allow(clippy::print_stdout, reason = "a command prints what it has measured")]

mod arrivals;
mod backlog;
mod claimed;
mod cluster;
mod commits;
mod drain;
mod engine;
mod goals;
mod handler;
mod handlers;
mod holdings;
mod idle;
mod inbox;
#[cfg(feature = "kafka")]
mod kafka;
mod latency;
mod lock;
mod memory;
mod meter;
mod options;
mod pile;
mod plot;
mod processor;
mod quantile;
mod report;
mod resident;
mod scale;
mod schedule;
mod stage;
mod statements;
mod steady;
mod takeover;
mod tally;
mod trial;
mod turns;
mod watch;
#[cfg(feature = "web")]
mod web;
mod worker;
mod writers;

use std::{error::Error, future::Future};

use clap::{Args, Subcommand};
use keylane::{
    Config,
    sqlx::{MySql, MySqlPool, PgPool, Postgres, Sqlite, SqlitePool},
};

use engine::Engine;
use options::Show;
use report::Report;
use stage::Stage;

/// The prefix of the tables of a bench.
const PREFIX: &str = "keylane_bench_";

/// The error of a bench, in words for people.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The subcommand of `keylane bench`.
#[derive(Clone, Debug, Args)]
pub struct Command {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Clone, Debug, Subcommand)]
enum Bench {
    #[command(flatten)]
    Measurement(Box<Measurement>),
    /// Measures what the library is to reach, one line of JSON a goal.
    Goals(goals::Options),
    /// Measures little, and fails only if the library is far from what it was.
    Check(goals::CheckOptions),
    #[command(hide = true)]
    Claimant(Box<claimed::process::Options>),
    #[command(hide = true)]
    Commits(Box<commits::Options>),
    #[command(hide = true)]
    Instance(memory::Instance),
    #[cfg(feature = "kafka")]
    #[command(hide = true)]
    Queue(kafka::memory::Queue),
    #[command(hide = true)]
    Worker(Box<worker::Options>),
}

/// A measurement.
#[derive(Clone, Debug, Subcommand)]
enum Measurement {
    /// Drains a backlog, against loops written by hand.
    Drain(drain::Options),
    /// Schedules in business transactions, against the same inserts by hand.
    Schedule(schedule::Options),
    /// From commit to handler, with events that arrive steadily, against an instance that polls.
    Latency(latency::Options),
    /// What instances cost that have nothing to do, against loops that only poll.
    Idle(idle::Options),
    /// How long records wait for an instance that starts, leaves or dies.
    Takeover(takeover::Options),
    /// Handlers that take their time, and one key with more records than all others.
    Handlers(handlers::Options),
    /// Drains a backlog without order by claims, against loops written by hand with the same three steps.
    Claimed(claimed::Options),
    /// Drains with several instances on one database, against one.
    Cluster(cluster::Options),
    /// Drains beside a large backlog of each kind, against a small one.
    Backlog(backlog::Options),
    /// Drains beside transactions of other writers: a long one, many, small ones.
    Writers(writers::Options),
    /// What one instance needs to drain a large backlog.
    Memory(memory::Options),
    /// Records come and go at a steady rate.
    Steady(steady::Options),
    /// Consumes messages once each, against a consumer written by hand; PostgreSQL.
    Inbox(inbox::Options),
    /// Hands a lock from one waiter to the next, against the locks of the database.
    Lock(lock::Options),
    /// Relays a backlog to Kafka, against the drain alone and the client alone.
    #[cfg(feature = "kafka")]
    Kafka(kafka::Options),
    /// Requests to a handler behind guards, against the handler alone; PostgreSQL and Redis.
    #[cfg(feature = "web")]
    Web(web::Options),
    /// Assigns partitions in a cluster of a thousand instances, in memory.
    Scale(scale::Options),
}

/// Measures on the database at this address, in tables of its own, which are dropped afterwards, and prints the
/// figures. The settings are those of the outbox, except the names of its tables.
///
/// # Errors
/// If the address is of no known database, if the database fails, or if the work was not done.
pub async fn run(url: &str, config: Config, Command { bench }: Command) -> Result<()> {
    match url.split(':').next() {
        Some("postgres" | "postgresql") => {
            run_on::<Postgres>(PgPool::connect_lazy(url)?, config, bench).await
        }
        Some("mysql" | "mariadb") => run_on::<MySql>(MySqlPool::connect_lazy(url)?, config, bench).await,
        Some("sqlite") => run_on::<Sqlite>(SqlitePool::connect_lazy(url)?, config, bench).await,
        _ => Err("the database url must begin with postgres://, mysql:// or sqlite://".into()),
    }
}

async fn run_on<E: Engine>(pool: E::Pool, config: Config, bench: Bench) -> Result<()> {
    let stage = Stage::<E>::new(pool, config);
    match bench {
        Bench::Measurement(measurement) => {
            let (measured, cleared) = on_stage(&stage, measure(stage.clone(), *measurement)).await;
            let (report, show) = measured?;
            report.show(&show)?;
            cleared
        }
        Bench::Goals(options) => {
            let (done, cleared) = on_stage(&stage, goals::run(stage.clone(), options)).await;
            done.and(cleared)
        }
        Bench::Check(options) => {
            let (done, cleared) = on_stage(&stage, goals::check(stage.clone(), options)).await;
            done.and(cleared)
        }
        Bench::Claimant(options) => claimed::process::run(&stage, *options).await,
        Bench::Commits(options) => commits::run::<E>(&stage, *options).await,
        Bench::Worker(options) => worker::run::<E>(stage.pool, *options).await,
        Bench::Instance(options) => memory::instance(&stage, &options).await,
        #[cfg(feature = "kafka")]
        Bench::Queue(queue) => kafka::memory::queue(&queue).await,
    }
}

/// Does the work unless it is interrupted. However it ends, the tables are dropped.
async fn on_stage<E: Engine, T: Send + 'static>(
    stage: &Stage<E>,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> (Result<T>, Result<()>) {
    // The work is a task, because the thread of `main` is no worker: each answer of the database would have to wake it.
    let mut work = tokio::spawn(work);
    let done = tokio::select! {
        done = &mut work => done.unwrap_or_else(|error| Err(error.into())),
        _ = tokio::signal::ctrl_c() => {
            work.abort();
            // Its connections are closed once it has ended.
            drop((&mut work).await);
            Err("interrupted".into())
        }
    };
    stage.bar.finish_and_clear();
    (done, stage.clear_away().await)
}

async fn measure<E: Engine>(stage: Stage<E>, measurement: Measurement) -> Result<(Report, Show)> {
    stage.set_up().await?;
    match measurement {
        Measurement::Drain(options) => Ok((drain::run(&stage, &options).await?, options.show)),
        Measurement::Schedule(options) => Ok((schedule::run(&stage, &options).await?, options.show)),
        Measurement::Latency(options) => Ok((latency::run(&stage, &options).await?, options.show)),
        Measurement::Idle(options) => Ok((idle::run(&stage, &options).await?, options.show)),
        Measurement::Takeover(options) => Ok((takeover::run(&stage, &options).await?, options.show)),
        Measurement::Handlers(options) => Ok((handlers::run(&stage, &options).await?, options.show)),
        Measurement::Claimed(options) => Ok((claimed::run(&stage, &options).await?, options.show)),
        Measurement::Cluster(options) => Ok((cluster::run(&stage, &options).await?, options.show)),
        Measurement::Backlog(options) => Ok((backlog::run(&stage, &options).await?, options.show)),
        Measurement::Writers(options) => Ok((writers::run(&stage, &options).await?, options.show)),
        Measurement::Memory(options) => Ok((memory::run(&stage, &options).await?, options.show)),
        Measurement::Steady(options) => Ok((steady::run(&stage, &options).await?, options.show)),
        Measurement::Lock(options) => Ok((lock::run(&stage, &options).await?, options.show)),
        Measurement::Inbox(options) => Ok((inbox::run(&stage, &options).await?, options.show)),
        #[cfg(feature = "kafka")]
        Measurement::Kafka(options) => Ok((kafka::run(&stage, &options).await?, options.show)),
        #[cfg(feature = "web")]
        Measurement::Web(options) => Ok((web::run(&stage, &options).await?, options.show)),
        Measurement::Scale(options) => Ok((scale::run(&options)?, options.show)),
    }
}
