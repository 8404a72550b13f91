//! Options that subcommands share.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use keylane::Config;

/// What the tables are filled with.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Load {
    /// Distinct keys of the records.
    #[arg(long, default_value = "10000")]
    pub(super) keys: NonZeroUsize,
    /// Length of each payload, JSON.
    #[arg(long, default_value_t = 200)]
    pub(super) payload_bytes: usize,
}

/// Settings of the library; its defaults if not given.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Tuning {
    /// Handler calls at once.
    #[arg(long)]
    concurrency: Option<usize>,
    /// Records a fetch at most.
    #[arg(long)]
    batch: Option<usize>,
}

/// How often is measured, and how that is shown.
#[derive(Clone, Debug, Args)]
pub(crate) struct Show {
    /// How often each subject is measured.
    #[arg(long, default_value = "5")]
    pub(super) runs: NonZeroUsize,
    /// How the figures are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// Draws the course of the last run into this file, as SVG.
    #[arg(long, value_name = "FILE.svg")]
    pub(super) plot: Option<PathBuf>,
}

/// How figures are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One JSON object per line.
    Json,
}

/// Reads a time given in seconds.
pub(super) fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl Tuning {
    /// The settings with these instead of their own.
    pub(super) fn applied_to(self, mut config: Config) -> Config {
        let delivery = &mut config.delivery;
        delivery.concurrency = self.concurrency.unwrap_or(delivery.concurrency);
        delivery.batch_size = self.batch.unwrap_or(delivery.batch_size);
        // At least two batches fit, so that a fetch goes on while the last one is handled.
        delivery.max_in_flight = delivery.max_in_flight.max(2 * delivery.batch_size);
        config
    }
}
