//! `keylane bench`: what the library costs on a database, beside references written by hand.
//!
//! Library and references run in one process, one after another, in a turn that changes with every
//! run; what is said of them are ratios within one run: median, minimum and maximum. Each run begins
//! with freshly filled tables and ends with the proof that the same work was done.
//!
//! The tables have the prefix [`PREFIX`]; they are made at the start and dropped at the end, also
//! after an error or Ctrl-C.

mod cluster;
mod drain;
mod engine;
mod handler;
mod handlers;
mod meter;
mod options;
mod plot;
mod processor;
mod report;
mod schedule;
mod stage;
mod tally;
mod trial;
mod watch;

use std::error::Error;

use clap::Subcommand;
use keylane::Config;

pub(super) use engine::Engine;
use options::Show;
use report::Report;
use stage::Stage;

/// Before the name of each table of a bench.
const PREFIX: &str = "keylane_bench_";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What `keylane bench` is asked for.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Bench {
    #[command(flatten)]
    Measurement(Measurement),
}

/// What is measured.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Measurement {
    /// Drains a backlog, against loops written by hand.
    Drain(drain::Options),
    /// Schedules in business transactions, against the same inserts by hand.
    Schedule(schedule::Options),
    /// Handlers that take their time, and one key with more records than all others.
    Handlers(handlers::Options),
    /// Drains with several instances on one database, against one.
    Cluster(cluster::Options),
}

/// Measures on tables of its own, takes them away and prints what was found.
pub(super) async fn run<E: Engine>(pool: E::Pool, config: Config, bench: Bench) -> Result<()> {
    let stage = Stage::<E>::new(pool, config);
    // In a task: the thread of `main` is no worker, every answer of the database would have to wake it.
    let mut work = tokio::spawn(work(stage.clone(), bench));
    let measured = tokio::select! {
        measured = &mut work => measured.unwrap_or_else(|error| Err(error.into())),
        _ = tokio::signal::ctrl_c() => {
            work.abort();
            // The connections are closed once it is gone.
            drop((&mut work).await);
            Err("interrupted".into())
        }
    };
    stage.bar.finish_and_clear();
    let cleared = stage.clear_away().await;
    let (report, show) = measured?;
    report.show(&show)?;
    cleared
}

async fn work<E: Engine>(stage: Stage<E>, bench: Bench) -> Result<(Report, Show)> {
    match bench {
        Bench::Measurement(measurement) => measure(&stage, measurement).await,
    }
}

async fn measure<E: Engine>(stage: &Stage<E>, measurement: Measurement) -> Result<(Report, Show)> {
    stage.set_up().await?;
    match measurement {
        Measurement::Drain(options) => Ok((drain::run(stage, &options).await?, options.show)),
        Measurement::Schedule(options) => Ok((schedule::run(stage, &options).await?, options.show)),
        Measurement::Handlers(options) => Ok((handlers::run(stage, &options).await?, options.show)),
        Measurement::Cluster(options) => Ok((cluster::run(stage, &options).await?, options.show)),
    }
}
