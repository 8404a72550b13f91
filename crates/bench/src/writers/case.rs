//! Whose transactions are open beside the drain.

use std::{fmt, time::Duration};

use super::super::engine::Engine;

/// Whose transactions are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Case {
    /// No other transaction.
    Plain,
    /// A transaction that has inserted the first record of all, and stays open.
    Long,
    /// A transaction that began before all others, has written to another table, and stays open.
    Elsewhere,
    /// Fifty writers, whose transactions take one to ten seconds each.
    Many,
    /// Two hundred small transactions per second.
    Small,
}

impl Case {
    /// The cases that a database can have. With one writer at a time, an open transaction keeps out all others.
    pub(super) fn all<E: Engine>() -> Vec<Self> {
        match E::SINGLY.len() > 1 {
            true => vec![Self::Plain, Self::Long, Self::Elsewhere, Self::Many, Self::Small],
            false => vec![Self::Plain, Self::Small],
        }
    }

    /// How long the measured part waits.
    pub(super) fn open_for(self, open: Duration) -> Duration {
        if self.is_long() { open } else { Duration::ZERO }
    }

    /// One transaction that ends after the measured part.
    pub(super) fn is_long(self) -> bool {
        matches!(self, Self::Long | Self::Elsewhere)
    }

    /// How many records become visible at its end.
    pub(super) fn written_late(self) -> usize {
        usize::from(self == Self::Long)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Long => "long transaction",
            Self::Elsewhere => "long one elsewhere",
            Self::Many => "50 writers",
            Self::Small => "200 commits/s",
        })
    }
}
