//! The promises of a history's producer, which decide what can be judged.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The expectations of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expect {
    /// Which records of a key are ordered.
    pub order: Order,
    /// Whether the history has the events of rows.
    pub truth: Truth,
    /// Whether repetitions of successful calls need a fault.
    pub repeats: Repeats,
    /// Whether the history has claims, releases and members. Without them, 8 and 10 to 13 are not judged, nor
    /// any other part that depends on the owner of a partition.
    pub ownership: bool,
    /// Whether each record is claimed by itself (claimed mode). Records then have no order, each is a lane of
    /// its own, and the generation of a call is the token of its claim.
    pub claimed: bool,
    /// Whether records may stay failed at the end.
    pub may_fail: bool,
    /// Whether an unreachable target may count as an attempt in the end.
    pub unavailable_counts: bool,
    /// Whether the history has all producers, so that an event without a producer is a ghost.
    pub writers: bool,
    /// Handlers whose lanes go on while a record waits for its next attempt (`stop_on_first_failure = false`).
    pub passes_failures: BTreeSet<String>,
    /// Handlers whose lanes go on past a record that has failed for good.
    pub passes_failed: BTreeSet<String>,
    /// Whether all instances have left at the end and own nothing.
    pub all_stopped: bool,
    /// Faults that excuse a call beside or after the call of another owner.
    pub excusing: BTreeSet<String>,
    /// Faults that may keep an instance from releasing partitions in time, and excuse nothing else.
    pub delaying: BTreeSet<String>,
    /// The longest time in nanoseconds of which a failover may lose the commits. The judge needs memory for
    /// it. Without it, a [`What::FailedOver`](crate::What::FailedOver) undoes nothing.
    pub forgets: Option<u64>,
    /// The longest time in nanoseconds between an excusing or delaying fault, which may have kept an instance from releasing
    /// partitions, and the eviction of the instance. Its calls then go on until it learns of the eviction.
    pub handover: u64,
    /// Bounds of the cluster's changes.
    pub takeover: Option<Takeover>,
    /// The longest time in nanoseconds that the head of a lane may wait for its call after the faults.
    pub head_waits: Option<u64>,
    /// Handlers whose effects are written at the end.
    pub transactional: BTreeSet<String>,
    /// The backoff per handler. Handlers without one have no timing judged.
    pub backoff: BTreeMap<String, Backoff>,
    /// Bounds of samples, by their names.
    pub bounds: BTreeMap<String, u64>,
    /// A text that is in all payloads and must be in no log line.
    pub canary: Option<String>,
    /// What must have happened before the end of this history. For what must happen in some history of a
    /// class, see [`Report::require`](crate::Report::require) on the sum of the reports.
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
            claimed: false,
            may_fail: false,
            unavailable_counts: false,
            writers: true,
            passes_failures: BTreeSet::new(),
            passes_failed: BTreeSet::new(),
            all_stopped: false,
            excusing: excusing.map(str::to_owned).into(),
            delaying: ["slow".to_owned()].into(),
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

/// Which records of a key must come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Records of one transaction are ordered, and so are two records if the first was committed before the
    /// second was scheduled.
    #[default]
    Causal,
    /// All records, by their ids.
    Strict,
}

/// Which events of the database the history has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truth {
    /// Every row that became visible or changed: `Stored` and `Changed`.
    #[default]
    Rows,
    /// No events of rows: a record exists from its commit on and ends with its first success. The order is
    /// that of scheduling.
    Calls,
}

/// Whether a record may be called again after a success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeats {
    /// At any time while its end is not durable.
    #[default]
    Any,
    /// Only if the instance of the earlier call had a fault in or after that call.
    Explained,
}

/// Bounds of the cluster's changes, in nanoseconds without a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Takeover {
    /// From the crash or end of the owner until another instance owns the partition.
    pub bound: u64,
    /// From the last change of the members until shares are equal.
    pub settled: u64,
}

/// The pauses between attempts in nanoseconds. The first is between the first and the second attempt; the
/// last holds for all that follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// The shortest pauses, less jitter and clock rates.
    pub least: Vec<u64>,
    /// The longest pauses, plus jitter, polls and queues. Judged after the faults.
    pub most: Vec<u64>,
}
