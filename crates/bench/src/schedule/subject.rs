//! The writers, and the options of the command line.

use std::{fmt, time::Duration};

use clap::Args;

use super::{
    engine::Engine,
    options::{Load, Show, seconds},
};

/// Options of `bench schedule`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(in super::super) load: Load,
    /// How long each writer writes in a run, in short slices one after another.
    #[arg(long, default_value = "3", value_parser = seconds)]
    pub(in super::super) seconds: Duration,
    /// No commit waits for the disk, so its noise is out of the figures; PostgreSQL and SQLite.
    #[arg(long)]
    pub(in super::super) relaxed: bool,
    #[command(flatten)]
    pub(in super::super) show: Show,
}

/// A writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// `schedule` beside the business row, `schedule_all` for many.
    Library,
    /// The record by the INSERT that an expert would write.
    Hand,
    /// The business row and nothing else.
    Business,
}

/// The kind of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// One business row and one record each, on this many connections.
    Single { connections: usize },
    /// This many records each, on one connection.
    Many { records: usize },
}

impl Setting {
    /// All of them.
    pub(super) fn all<E: Engine>() -> Vec<Self> {
        let single = E::SINGLY.iter().map(|connections| Self::Single { connections: *connections });
        single.chain([Self::Many { records: 1_000 }]).collect()
    }

    /// The writers of this kind: the library first.
    pub(super) fn writers(self) -> &'static [Writer] {
        match self {
            Self::Single { .. } => &[Writer::Library, Writer::Hand, Writer::Business],
            Self::Many { .. } => &[Writer::Library, Writer::Hand],
        }
    }

    pub(super) fn connections(self) -> usize {
        match self {
            Self::Single { connections } => connections,
            Self::Many { .. } => 1,
        }
    }

    /// Records, or business rows, of a transaction.
    pub(super) fn rows(self) -> usize {
        match self {
            Self::Single { .. } => 1,
            Self::Many { records } => records,
        }
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Library => "library",
            Self::Hand => "by hand",
            Self::Business => "business",
        })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single { connections: 1 } => f.write_str("1 connection"),
            Self::Single { connections } => write!(f, "{connections} connections"),
            Self::Many { records } => write!(f, "{records} a transaction"),
        }
    }
}
