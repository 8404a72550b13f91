//! Faults and their times.

use std::{fmt, time::Duration};

use fastrand::Rng;

/// One fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The begin of the fault.
    pub at: Duration,
    /// The duration of the fault.
    pub lasts: Duration,
    /// The kind of the fault.
    pub kind: Kind,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The process ends as under `kill -9` and starts again after the fault.
    Crash(usize),
    /// The process gets no processor time.
    Pause(usize),
    /// The process shuts down, and starts again after the fault or its end, whichever is later.
    Leave(usize),
    /// No call of the node reaches the database; `None` means all nodes.
    Outage(Option<usize>),
    /// Calls reach the database, but replies do not reach the node.
    Deaf(Option<usize>),
    /// Calls neither succeed nor fail until their time limit.
    Hang(Option<usize>),
    /// This many of a thousand calls fail, half of them after their effect.
    Flaky(Option<usize>, u32),
    /// Calls take up to this many milliseconds longer.
    Slow(Option<usize>, u32),
    /// The database goes back to its state at the begin of the fault.
    FailOver,
    /// A person declares the instance of the node dead.
    Evict(usize),
    /// All nodes are replaced, one after the other, by another build.
    Deploy,
}

impl Fault {
    /// Draws a fault at any time of the run.
    pub(crate) fn draw(dice: &mut Rng, nodes: usize, run: Duration, kinds: &[u8]) -> Self {
        let node = dice.usize(..nodes);
        let whom = dice.bool().then_some(node);
        let kind = match kinds[dice.usize(..kinds.len())] {
            0 => Kind::Crash(node),
            1 => Kind::Pause(node),
            2 => Kind::Leave(node),
            3 => Kind::Outage(whom),
            4 => Kind::Deaf(whom),
            5 => Kind::Hang(whom),
            6 => Kind::Flaky(whom, dice.u32(5..300)),
            7 => Kind::Slow(whom, dice.u32(5..300)),
            8 => Kind::Evict(node),
            9 => Kind::Deploy,
            _ => Kind::FailOver,
        };
        let longest = match kind {
            Kind::FailOver => 1_000,
            Kind::Flaky(..) | Kind::Slow(..) => 10_000,
            _ => 6_000,
        };
        let at = Duration::from_millis(dice.u64(500..run.as_millis() as u64));
        let lasts = Duration::from_millis(dice.u64(20..longest));
        // The call takes some time, and the instance learns of the eviction later.
        let least = if matches!(kind, Kind::Evict(_)) { Duration::from_secs(4) } else { Duration::ZERO };
        Self { at, lasts: lasts.max(least), kind }
    }

    /// The number of kinds of faults.
    pub(crate) const KINDS: u8 = 11;

    /// The node of the fault, if it concerns one.
    pub(crate) fn node(&self) -> Option<usize> {
        match self.kind {
            Kind::Crash(node) | Kind::Pause(node) | Kind::Leave(node) | Kind::Evict(node) => Some(node),
            Kind::Outage(node)
            | Kind::Deaf(node)
            | Kind::Hang(node)
            | Kind::Flaky(node, _)
            | Kind::Slow(node, _) => node,
            Kind::FailOver | Kind::Deploy => None,
        }
    }

    /// The name in the history.
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Crash(_) => "crash",
            Kind::Pause(_) => "pause",
            Kind::Leave(_) => "leave",
            Kind::Outage(_) | Kind::Deaf(_) | Kind::Flaky(..) => "outage",
            Kind::Hang(_) => "hang",
            Kind::Slow(..) => "slow",
            Kind::FailOver => "failover",
            Kind::Evict(_) => "evict",
            Kind::Deploy => "deploy",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?} for {:?}", self.kind, self.at, self.lasts)
    }
}
