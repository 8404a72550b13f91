//! Whose transactions are open beside the drain.

use std::{fmt, time::Duration};

use super::super::engine::Engine;

/// Whose transactions are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Case {
    /// Nobody's.
    Plain,
    /// One that has inserted a record, before all others, and stays open.
    Long,
    /// Fifty writers', which take one to ten seconds each.
    Many,
    /// Two hundred small ones a second.
    Small,
}

impl Case {
    /// Those that there are on a database. With one writer at a time, one that is open keeps out everybody.
    pub(super) fn all<E: Engine>() -> Vec<Self> {
        match E::SINGLY.len() > 1 {
            true => vec![Self::Plain, Self::Long, Self::Many, Self::Small],
            false => vec![Self::Plain, Self::Small],
        }
    }

    /// How long anything that is measured waits.
    pub(super) fn open_for(self, open: Duration) -> Duration {
        if self == Self::Long { open } else { Duration::ZERO }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Long => "long transaction",
            Self::Many => "50 writers",
            Self::Small => "200 commits/s",
        })
    }
}
