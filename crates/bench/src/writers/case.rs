//! The transactions that are open beside the drain.

use std::{fmt, time::Duration};

use super::super::engine::Engine;

/// The transactions that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Case {
    /// No other transaction.
    Plain,
    /// A transaction that has inserted the first record of all, and stays open.
    Long,
    /// A transaction that began before all others, has written to another table, and stays open.
    Elsewhere,
    /// A transaction that only reads. Its snapshot is older than all records, and stays open.
    Snapshot,
    /// Fifty writers, whose transactions take one to ten seconds each.
    Many,
    /// Two hundred small transactions per second.
    Small,
}

impl Case {
    /// The cases that a database can have. With one writer at a time, an open transaction that has written keeps out
    /// all other writers.
    pub(super) fn all<E: Engine>() -> Vec<Self> {
        match E::ONE_WRITER {
            true => vec![Self::Plain, Self::Snapshot, Self::Many, Self::Small],
            false => {
                vec![Self::Plain, Self::Long, Self::Elsewhere, Self::Snapshot, Self::Many, Self::Small]
            }
        }
    }

    /// The time that the measured part waits.
    pub(super) fn open_for(self, open: Duration) -> Duration {
        if self.is_long() { open } else { Duration::ZERO }
    }

    /// Whether one transaction ends after the measured part.
    pub(super) fn is_long(self) -> bool {
        matches!(self, Self::Long | Self::Elsewhere | Self::Snapshot)
    }

    /// The number of records that become visible at its end.
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
            Self::Snapshot => "long snapshot",
            Self::Many => "50 writers",
            Self::Small => "200 commits/s",
        })
    }
}
