//! `keylane relay`: joins the cluster and relays records by the routes of a file.

mod check;
mod config;
mod database;
mod health;
mod kafka;
mod log;
mod plan;
mod rights;
mod setting;
mod signals;
mod webhook;
mod workers;

use std::{
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
};

use self::{
    health::HealthServer,
    plan::Plan,
    signals::{Asked, Signals},
    workers::{Ended, Workers},
};
use crate::settings::Settings;

/// Relays records by the routes of a file until a signal ends it.
#[derive(Debug, clap::Args)]
pub(crate) struct Command {
    /// Checks settings, database, rights, brokers and topics, prints a line for each, and ends: with code 1 if
    /// one is bad.
    #[arg(long)]
    check: bool,
}

/// The address from the environment or the command line, and the file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) database_url: Option<String>,
    pub(crate) file: PathBuf,
}

/// Checks or relays.
///
/// # Errors
/// What keeps the relay from starting.
pub(crate) async fn run(
    command: &Command,
    database_url: Option<String>,
    file: Option<&Path>,
) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let file = file.ok_or("keylane relay needs --config FILE with a table [relay]: see docs/relay.md")?;
    let source = Source { database_url, file: file.to_owned() };
    if command.check {
        return Ok(check::run(&source).await);
    }
    let plan = Plan::read(&source)?;
    log::begin(plan.relay.log);
    // This comes first, so that a signal asks for an orderly end from now on.
    let mut signals = Signals::listen()?;
    let mut workers = Workers::new();
    let health = match plan.relay.health {
        Some(address) => Some(HealthServer::listen(address, workers.health()).await?),
        None => None,
    };
    let address = health.as_ref().map(|server| tracing::field::display(server.address()));
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(target: "keylane_relay", version, routes = plan.relay.route.len(), health = address, "the relay begins");
    workers.begin(plan.open().await?);
    let ended = loop {
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::Stop(_) => break None,
                Asked::Reload => reload(&source, &mut workers).await,
            },
            ended = workers.run() => break Some(ended),
        }
    };
    if let Some(ended) = ended {
        return ended.code();
    }
    tracing::info!(target: "keylane_relay", "the relay stops: it finishes what is under way");
    tokio::select! {
        ended = workers.stop() => ended.code(),
        number = signals.stop() => {
            tracing::warn!(target: "keylane_relay", "a second signal: the relay ends at once");
            // A shell reports a process that a signal has ended with this code.
            Ok(ExitCode::from(128_u8.saturating_add(number)))
        }
    }
}

/// Lists the relay in the table in which producers look up handlers.
///
/// # Errors
/// A mistake in the settings, or an error of the database.
pub(crate) async fn publish(settings: Settings, url: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let plan = Plan::of(settings, Some(url), "the file")?;
    Ok(plan.open().await?.outbox.publish_handlers().await?)
}

/// Checks what can be checked of settings without a connection and without a client of Kafka.
///
/// # Errors
/// The mistake, as a sentence.
pub(crate) fn check_settings(settings: Settings, file: &Path) -> Result<(), String> {
    let plan = Plan::of(settings, None, &file.display().to_string()).map_err(|error| error.to_string())?;
    let checked = plan.relay.routes().and_then(|_| plan.relay.webhook.config());
    checked.map(drop).map_err(|problem| plan.secrets.redact(&problem))
}

/// Reads the settings of the file again. If they are invalid, the old ones stay in force.
async fn reload(source: &Source, workers: &mut Workers) {
    let opened = async { Plan::read(source)?.open().await };
    match opened.await {
        Ok(opened) => {
            tracing::info!(target: "keylane_relay", "the file is read again; new workers take over");
            workers.begin(opened);
        }
        Err(error) => {
            let problem = error.to_string();
            tracing::error!(target: "keylane_relay", problem, "the new settings are refused; the old ones stay");
        }
    }
}

impl Ended {
    /// The exit code.
    fn code(self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        match self {
            Self::Graceful => {
                tracing::info!(target: "keylane_relay", "the relay has ended");
                Ok(ExitCode::SUCCESS)
            }
            Self::Forced { cancelled } => {
                tracing::warn!(
                    target: "keylane_relay", cancelled,
                    "the relay has ended before all was done: the other replicas deliver the rest"
                );
                Ok(ExitCode::FAILURE)
            }
            Self::NotStarted(error) => Err(error.into()),
            Self::Died(problem) => Err(format!("the workers have ended: {problem}").into()),
        }
    }
}
