//! The invariants, by number and name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What must hold in every history. The numbers are stable: reports, tests and pages name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invariant {
    /// Every record of a committed event has an end: delivered, taken by its fallback, failed and left to a person if
    /// [`Expect::may_fail`](crate::Expect::may_fail) says so, discarded, or cancelled. What a failover forgot is
    /// excused; what was committed without a reply must have an end as soon as any of its transaction was seen. What is
    /// taken for a duplicate is one of something.
    NoLoss = 1,
    /// Only events whose commit had begun are stored or handled, each once per handler, and one per dedup key; none
    /// that was refused, undone, rolled back or cancelled, and none with another key or partition than it was scheduled
    /// with.
    NoGhost = 2,
    /// A record completes at most once, and only after a call of it that succeeded, or by a person.
    AtLeastOnce = 3,
    /// The first attempt of a record begins after those of all records before it in its lane (partition, key and
    /// handler). Before it is what has a lower id and is in the order of [`Order`](crate::Order). A record scheduled for
    /// later is before none until it is called, because it has no place in the order until it is due.
    FirstAttempts = 4,
    /// While a record of a lane has failed and has no end, no later record of the lane is called by the owner. Lanes
    /// also hold a call back while an earlier record is in another one. Calls of former owners are judged by
    /// [`Invariant::Lease`].
    StopOnFailure = 5,
    /// Records of a lane complete in their order.
    Outcomes = 6,
    /// What succeeded is called again only where its outcome may have been lost, and then a new owner begins at the
    /// first record without a durable end. Under [`Repeats::Explained`](crate::Repeats::Explained) each repetition needs
    /// a fault of the instance that was there before.
    Replays = 7,
    /// A partition has one owner per generation; each change of owner has a higher one, by one step; and calls name
    /// the owner's own.
    OneOwner = 8,
    /// A call begins only within the lease of its instance. A call of one who does not own the partition any more,
    /// or one beside another call of the same lane, needs a fault of the older instance that reaches into it.
    Lease = 9,
    /// Outcomes are written only by an instance that is a member and owns the partition. In this design the fence is a
    /// row per instance that the eviction closes, not the partition's generation: what counts is that no outcome of an
    /// instance comes after its end in the order of commits.
    Fence = 10,
    /// A partition whose owner is dead or gone has another within the bound, as long as a healthy member is there and
    /// no fault interferes.
    Takeover = 11,
    /// In a window without faults the shares of the active members differ by one at most, and nothing is unowned.
    Balance = 12,
    /// Between two balanced states with one member more or fewer, as few partitions move as possible.
    Movement = 13,
    /// After the faults, each record at the head of its lane is called within the bound.
    Starvation = 14,
    /// Each completed record of a transactional handler has one effect, each other none. What a handler commits by
    /// itself comes on top.
    Effects = 15,
    /// A crashed instance does nothing more. The research page asks that 1 to 10 hold whatever point a crash comes at:
    /// they are judged in every history; here it is judged that the crash was one.
    Crash = 16,
    /// The count of attempts is at most that of the failures of the handler: nothing else is counted. And as long as
    /// an owner meets no fault, it counts each failure before it calls again.
    Attempts = 17,
    /// A retry comes neither before the back-off is over nor, after the faults, long after it.
    RetryTiming = 18,
    /// What was sampled stays within its bound.
    Bounds = 19,
    /// After the end nothing is left: no member, no owner, no session, no lock.
    Quiet = 20,
    /// No log line contains the canary that all payloads contain.
    Secrets = 21,
    /// What must happen in some run of a class has happened: otherwise the runs show nothing.
    Sometimes = 22,
}

impl Invariant {
    /// All of them, by number.
    pub const ALL: [Self; 22] = [
        Self::NoLoss,
        Self::NoGhost,
        Self::AtLeastOnce,
        Self::FirstAttempts,
        Self::StopOnFailure,
        Self::Outcomes,
        Self::Replays,
        Self::OneOwner,
        Self::Lease,
        Self::Fence,
        Self::Takeover,
        Self::Balance,
        Self::Movement,
        Self::Starvation,
        Self::Effects,
        Self::Crash,
        Self::Attempts,
        Self::RetryTiming,
        Self::Bounds,
        Self::Quiet,
        Self::Secrets,
        Self::Sometimes,
    ];

    /// Its number, from 1.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoLoss => "no loss",
            Self::NoGhost => "no ghost",
            Self::AtLeastOnce => "at least once",
            Self::FirstAttempts => "order of first attempts",
            Self::StopOnFailure => "stop on failure",
            Self::Outcomes => "order of outcomes",
            Self::Replays => "replays are suffixes",
            Self::OneOwner => "one owner per generation",
            Self::Lease => "no call outside the lease",
            Self::Fence => "the fenced write nothing",
            Self::Takeover => "bounded takeover",
            Self::Balance => "balance",
            Self::Movement => "minimal movement",
            Self::Starvation => "no starvation",
            Self::Effects => "effects exactly once",
            Self::Crash => "the crashed are silent",
            Self::Attempts => "no attempt burned",
            Self::RetryTiming => "retry timing",
            Self::Bounds => "resource bounds",
            Self::Quiet => "nothing left behind",
            Self::Secrets => "no secret in a log",
            Self::Sometimes => "sometimes reached",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.number(), self.name())
    }
}
