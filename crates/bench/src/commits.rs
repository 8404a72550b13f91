//! `bench commits`: events that arrive steadily, committed by a process of its own.
//!
//! It prints one line per event: the number, and the time of the commit in microseconds of the system's clock.

use std::{
    fmt::Write,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use clap::Args;
use keylane::Config;
use tokio::time::Instant;

use super::{Engine, Result, arrivals::Arrivals, options::Load, stage::Stage};

/// Options of `bench commits`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The settings, as JSON.
    #[arg(long, value_parser = |text: &str| serde_json::from_str::<Config>(text))]
    settings: Config,
    #[arg(long)]
    events: usize,
    #[arg(long)]
    rate: f64,
    #[command(flatten)]
    load: Load,
}

/// Commits all events, and prints the time of each commit.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: Options) -> Result<()> {
    let arrivals = Arrivals::new(options.events, options.load);
    // The outbox is not started, so it delivers nothing.
    let outbox = arrivals.outbox(stage, options.settings).build().await?;
    arrivals.clone().send(vec![outbox], options.rate).await?;
    let (now, clock) = (Instant::now(), since_epoch(SystemTime::now())?);
    let mut lines = String::new();
    for (number, committed) in arrivals.commits() {
        let at = clock.saturating_sub(now.saturating_duration_since(committed));
        writeln!(lines, "{number} {}", at.as_micros())?;
    }
    stage.bar.suspend(|| print!("{lines}"));
    Ok(())
}

/// Starts this program again. It commits all arrivals at this rate, and the instances here deliver them.
pub(super) async fn elsewhere<E: Engine>(
    arrivals: &Arrivals,
    stage: &Stage<E>,
    settings: &Config,
    rate: f64,
) -> Result<()> {
    let Load { keys, payload_bytes } = arrivals.load();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "commits", "--settings", &serde_json::to_string(settings)?]);
    command.args(["--events", &arrivals.len().to_string(), "--rate", &rate.to_string()]);
    command.args(["--keys", &keys.to_string(), "--payload-bytes", &payload_bytes.to_string()]);
    // Not an argument: all users of the machine could read it there.
    command.env("DATABASE_URL", E::url(&stage.pool)).stderr(Stdio::inherit());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    if !output.status.success() {
        return Err(format!("the process that commits has ended with {}", output.status).into());
    }
    let (now, clock) = (Instant::now(), since_epoch(SystemTime::now())?);
    for line in str::from_utf8(&output.stdout)?.lines() {
        let (number, micros) = line.split_once(' ').ok_or("a commit without a time")?;
        let ago = clock.saturating_sub(Duration::from_micros(micros.parse()?));
        arrivals.committed(number.parse()?, now.checked_sub(ago).unwrap_or(now));
    }
    Ok(())
}

fn since_epoch(time: SystemTime) -> Result<Duration> {
    Ok(time.duration_since(SystemTime::UNIX_EPOCH)?)
}
