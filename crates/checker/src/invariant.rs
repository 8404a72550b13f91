//! The invariants, with their numbers and names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What must hold in every history. The numbers are stable: reports, tests and pages use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invariant {
    /// Every record of a committed event has an end: delivered, taken by its fallback, failed and left to a
    /// person if [`Expect::may_fail`](crate::Expect::may_fail) is set, discarded, or cancelled. Commits that
    /// a failover lost are excused. A commit without a reply must have an end as soon as any part of its
    /// transaction was seen. A duplicate must be one of another event.
    NoLoss = 1,
    /// Only events whose commit had begun are stored or handled, each once per handler, and one per dedup
    /// key. No event that was refused, undone, rolled back or cancelled is stored or handled, and none with
    /// another key or partition than it was scheduled with.
    NoGhost = 2,
    /// A record completes at most once, and only after a successful call, or by a person.
    AtLeastOnce = 3,
    /// The first attempt of a record begins after the first attempts of all records before it in its lane
    /// (partition, key and handler). A record is before another if its id is lower and both are ordered by
    /// [`Order`](crate::Order). A record scheduled for later is before no other until it is called, because
    /// it has no place in the order until it is due.
    FirstAttempts = 4,
    /// While a record of a lane has failed and has no end, the owner calls no later record of the lane. A
    /// lane also waits while an earlier record is in another lane. Calls of former owners are judged by
    /// [`Invariant::Lease`].
    StopOnFailure = 5,
    /// Records of a lane complete in their order.
    Outcomes = 6,
    /// A successful record is called again only if its outcome may have been lost, and a new owner then
    /// begins at the first record without a durable end. Under
    /// [`Repeats::Explained`](crate::Repeats::Explained) each repetition needs a fault of the earlier
    /// instance.
    Replays = 7,
    /// A partition has one owner per generation. Each change of owner raises the generation by one, and calls
    /// have the generation of their owner. In claimed mode the same holds of a record and the tokens of its
    /// claims, and no record is claimed before the lease of the claim before has run out.
    OneOwner = 8,
    /// A call begins only within the lease of its instance. A call by an instance that no longer owns the
    /// partition, or a call beside another call of the same lane, needs a fault of the older instance that
    /// reaches into the call. In claimed mode a call begins only under the last claim of its record.
    Lease = 9,
    /// Outcomes are written only by an instance that is a member and owns the partition. In this design the
    /// fence is a row per instance that the eviction closes, not the partition's generation: no outcome of an
    /// instance may come after the instance's end in the order of commits. In claimed mode an outcome is written
    /// only by the owner of the record's last claim.
    Fence = 10,
    /// If the owner of a partition is dead or gone, the partition has another owner within the bound, as long
    /// as a healthy member exists and no fault interferes.
    Takeover = 11,
    /// In a window without faults, the shares of the active members differ by at most one, and every
    /// partition has an owner.
    Balance = 12,
    /// Between two balanced states with one member more or fewer, the smallest possible number of partitions
    /// moves.
    Movement = 13,
    /// After the faults, each record at the head of its lane is called within the bound.
    Starvation = 14,
    /// Each completed record of a transactional handler has one effect, each other record none. Effects that
    /// a handler commits itself are added.
    Effects = 15,
    /// A crashed instance does nothing after the crash. The research page asks that 1 to 10 hold for a crash
    /// at any point: these are judged in every history; this one judges that the crash was a crash.
    Crash = 16,
    /// The count of attempts is at most the number of the handler's failures, and nothing else is counted. An
    /// owner without a fault counts each failure before it calls again.
    Attempts = 17,
    /// A retry comes neither before the end of the backoff nor, after the faults, long after it.
    RetryTiming = 18,
    /// Samples stay within their bounds.
    Bounds = 19,
    /// After the end, no member, owner, session or lock is left.
    Quiet = 20,
    /// No log line contains the canary that all payloads contain.
    Secrets = 21,
    /// What must happen in some run of a class has happened. Otherwise the runs prove nothing.
    Sometimes = 22,
}

impl Invariant {
    /// All invariants, by number.
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

    /// The number, from 1.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The name.
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
