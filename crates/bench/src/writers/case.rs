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
    /// One that has written elsewhere before all others, and stays open.
    Elsewhere,
    /// Fifty writers', which take one to ten seconds each.
    Many,
    /// Two hundred small ones a second.
    Small,
}

impl Case {
    /// Those that there are on a database. With one writer at a time, one that is open keeps out everybody.
    pub(super) fn all<E: Engine>() -> Vec<Self> {
        match E::SINGLY.len() > 1 {
            true => vec![Self::Plain, Self::Long, Self::Elsewhere, Self::Many, Self::Small],
            false => vec![Self::Plain, Self::Small],
        }
    }

    /// How long anything that is measured waits.
    pub(super) fn open_for(self, open: Duration) -> Duration {
        if self.is_long() { open } else { Duration::ZERO }
    }

    /// One transaction that ends after all that is measured.
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
