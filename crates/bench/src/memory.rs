//! `bench memory`: the memory of an instance that drains a large backlog.
//!
//! The instance runs in a process of its own, this program started once more, so that nothing else is
//! counted: not the filling of the tables, and nothing of an earlier run.

use std::{
    env,
    num::NonZeroUsize,
    process::{Command, Stdio},
};

use clap::Args;
use indicatif::ProgressBar;
use keylane::Registration;
use serde::{Deserialize, Serialize};

use super::{
    Result,
    engine::Engine,
    handler::{Count, HANDLER},
    meter::Figure,
    options::{Load, Show, Tuning},
    pile::{Keys, Pile, Stored},
    report::Report,
    resident,
    stage::Stage,
    trial,
};

/// Options of `bench memory`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Records of the backlog.
    #[arg(long, default_value = "1000000")]
    records: NonZeroUsize,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    pub(super) show: Show,
}

/// The arguments for the process of the instance.
#[derive(Clone, Debug, Args)]
pub(crate) struct Instance {
    /// Records in the tables.
    #[arg(long)]
    records: NonZeroUsize,
    /// The settings of the outbox, JSON.
    #[arg(long)]
    settings: String,
}

/// What it tells, in MiB.
#[derive(Serialize, Deserialize)]
pub(super) struct Resident {
    pub(super) before: Option<f64>,
    pub(super) peak: Option<f64>,
}

/// Fills the tables and lets an instance drain them, as many times as `--runs` says.
///
/// # Errors
/// Also if the work was not done.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options) -> Result<Report> {
    let mut report = Report::new("memory", E::NAME);
    let config = options.tuning.applied_to(stage.config.clone());
    let settings = serde_json::to_string(&config)?;
    let runs = options.show.runs.get();
    for run in 1..=runs {
        stage.bar.set_message(format!("run {run} of {runs}"));
        let pile = Pile::new(stage, options.load).await?;
        pile.add(options.records.get(), Keys::All, Stored::Pending).await?;
        let arguments = ["instance", "--settings", &settings, "--records", &options.records.to_string()];
        let Resident { before, peak } = in_a_process(stage, &arguments).await?;
        let resident = |name, value| Figure { name, unit: "MiB", value };
        report.add_all("instance", &[resident("resident before", before), resident("most resident", peak)]);
    }
    let Load { keys, payload_bytes } = options.load;
    report.note(format!("{} records of {payload_bytes} bytes, {keys} keys", options.records));
    Ok(report)
}

/// Runs `bench` with these arguments in a process of its own. Returns the figures that it has printed.
pub(super) async fn in_a_process<E: Engine>(stage: &Stage<E>, arguments: &[&str]) -> Result<Resident> {
    let mut command = Command::new(env::current_exe()?);
    // In the environment: a list of processes shows arguments to everyone.
    command.env("DATABASE_URL", E::url(&stage.pool)).stderr(Stdio::inherit());
    command.arg("bench").args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    if !output.status.success() {
        return Err(format!("the process of the instance ended with {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Drains the tables in this process and prints what that needed.
///
/// # Errors
/// Also if the work was not done.
pub(super) async fn instance<E: Engine>(stage: &Stage<E>, options: &Instance) -> Result<()> {
    // The process that waits for this one has the bar.
    let stage = Stage { bar: ProgressBar::hidden(), ..stage.clone() };
    let tally = stage.tally(options.records.get()).await?;
    let handler = Registration::typed(HANDLER, Count(tally.clone()));
    let outbox = stage.outbox(serde_json::from_str(&options.settings)?, [handler], &tally).await?;
    let before = resident::now();
    trial::measured(&stage, outbox, &tally, tally.all_settled()).await?;
    tally.check()?;
    println!("{}", serde_json::to_string(&Resident { before, peak: resident::peak() })?);
    Ok(())
}
