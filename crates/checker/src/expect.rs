//! What the producer of a history promises of it, and so what can be judged.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What to expect of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expect {
    /// Which records of a key are in an order.
    pub order: Order,
    /// Whether the history has the events of rows.
    pub truth: Truth,
    /// Whether repetitions of what succeeded need a fault.
    pub repeats: Repeats,
    /// Whether claims, releases and members are in the history: without them 8 and 10 to 13 are not judged, nor what
    /// else depends on who owns a partition.
    pub ownership: bool,
    /// Whether records may stay failed at the end.
    pub may_fail: bool,
    /// Whether a target that is away may count as an attempt in the end.
    pub unavailable_counts: bool,
    /// Whether all producers are in the history: if so, events that nobody scheduled are ghosts.
    pub writers: bool,
    /// Handlers whose lanes go on while a record waits for its next attempt (`stop_on_first_failure = false`).
    pub passes_failures: BTreeSet<String>,
    /// Handlers whose lanes go on past a record that has failed for good.
    pub passes_failed: BTreeSet<String>,
    /// Whether, at the end, all instances have left and own nothing.
    pub all_stopped: bool,
    /// Faults that excuse a call beside or after another owner's.
    pub excusing: BTreeSet<String>,
    /// How far back, in nanoseconds, a failover may forget; memory is needed for so much. Without it, a
    /// [`What::FailedOver`](crate::What::FailedOver) takes nothing back.
    pub forgets: Option<u64>,
    /// How long before its eviction, in nanoseconds, a fault may have kept an instance from releasing what others wait
    /// for. Then it goes on for a moment, without a fault of that moment.
    pub handover: u64,
    /// Bounds of the cluster's changes.
    pub takeover: Option<Takeover>,
    /// How long, in nanoseconds, the head of a lane may wait for its call after the faults.
    pub head_waits: Option<u64>,
    /// Handlers whose effects are dumped at the end.
    pub transactional: BTreeSet<String>,
    /// The back-off of handlers; of others no timing is judged.
    pub backoff: BTreeMap<String, Backoff>,
    /// Bounds of samples, by their names.
    pub bounds: BTreeMap<String, u64>,
    /// A text that all payloads contain and no log line may.
    pub canary: Option<String>,
    /// What must have happened before the end of this history. What must happen in some history of a class is asked of
    /// the sum of their reports: [`Report::require`](crate::Report::require).
    pub sometimes: BTreeSet<String>,
}

impl Default for Expect {
    fn default() -> Self {
        let excusing = ["crash", "pause", "blackhole", "clock", "hang", "outage", "failover", "evict"];
        Self {
            order: Order::Causal,
            truth: Truth::Rows,
            repeats: Repeats::Any,
            ownership: true,
            may_fail: false,
            unavailable_counts: false,
            writers: true,
            passes_failures: BTreeSet::new(),
            passes_failed: BTreeSet::new(),
            all_stopped: false,
            excusing: excusing.map(str::to_owned).into(),
            forgets: None,
            handover: 0,
            takeover: None,
            head_waits: None,
            transactional: BTreeSet::new(),
            backoff: BTreeMap::new(),
            bounds: BTreeMap::new(),
            canary: None,
            sometimes: BTreeSet::new(),
        }
    }
}

/// Which of two records of a key must come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Those of one transaction, and those of which the one was committed before the other was scheduled.
    #[default]
    Causal,
    /// All, by their ids.
    Strict,
}

/// What the history tells of the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truth {
    /// Each row that became visible or changed: `Stored` and `Changed`.
    #[default]
    Rows,
    /// Nothing of the rows: a record is there from its commit on and has its end with its first success. Order is that
    /// of scheduling.
    Calls,
}

/// Whether what succeeded may be called again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeats {
    /// At any time while its end is not durable.
    #[default]
    Any,
    /// Only if the instance of the call before had a fault in or after that call.
    Explained,
}

/// Bounds of the cluster's changes, in nanoseconds without a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Takeover {
    /// From the crash of the owner, or from its end, until another owns the partition.
    pub bound: u64,
    /// From the last change of the members until shares are equal.
    pub settled: u64,
}

/// The pauses between attempts, in nanoseconds: the first is that between the first and the second attempt, and the last
/// stands for all that follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// The shortest pauses, jitter and clock rates taken off.
    pub least: Vec<u64>,
    /// The longest pauses, jitter, polls and queues added; judged after the faults.
    pub most: Vec<u64>,
}
