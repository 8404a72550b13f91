//! Instances: the running processes that share the partitions, and the views they have of one another.

use std::{cell::Cell, fmt, hash::BuildHasher, str::FromStr};

use uuid::Uuid;

use crate::partition::PARTITION_COUNT;

/// The identity of one running process. Each start has a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(Uuid);

impl InstanceId {
    /// A new identity (uuid v7: instances sort by their start).
    pub fn generate() -> Self {
        Self(identity())
    }

    /// The identity as a uuid.
    pub const fn as_uuid(&self) -> Uuid {
        self.0
    }
}

thread_local! {
    /// The seed of the identities made on this thread, and the number made so far. `None` outside of a
    /// simulation.
    static SEED: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// Derives the identities that this thread makes from now on from a seed, so that a simulation can repeat
/// them.
pub fn seed_identities(seed: u64) {
    SEED.set(Some((seed, 0)));
}

fn identity() -> Uuid {
    let Some((seed, count)) = SEED.get() else { return Uuid::now_v7() };
    SEED.set(Some((seed, count + 1)));
    // Identities sort by their start, as all others do. Only the last bits look random.
    let chance = foldhash::fast::FixedState::with_seed(seed).hash_one(count);
    Uuid::from_u64_pair(count, chance)
}

impl From<Uuid> for InstanceId {
    fn from(id: Uuid) -> Self {
        Self(id)
    }
}

impl FromStr for InstanceId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The states of an instance row. `Stopped` and `Dead` are final: a process that was declared dead joins
/// again with a new identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InstanceState {
    /// Beats, and owns its share of the partitions.
    Active,
    /// Beats, finishes its work and claims nothing.
    Draining,
    /// Has left. Its partitions are free.
    Stopped,
    /// Evicted by another instance. Its partitions are free and its fence rows are closed.
    Dead,
}

impl InstanceState {
    /// The word stored in `outbox_instance.state`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Draining => "DRAINING",
            Self::Stopped => "STOPPED",
            Self::Dead => "DEAD",
        }
    }

    /// Whether an instance in this state may own partitions.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Active | Self::Draining)
    }
}

impl FromStr for InstanceState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Active, Self::Draining, Self::Stopped, Self::Dead]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("unknown instance state {text:?}"))
    }
}

/// The number of claims of a partition. Grows by exactly one per claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub i64);

/// A live instance, as another instance reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The id of the instance.
    pub id: InstanceId,
    /// The stored state.
    pub state: InstanceState,
    /// The beat counter. Observers watch whether it moves, and ignore when it was written.
    pub beat: i64,
}

/// The owner of a partition, and the generation of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Claim {
    /// The owner, or `None` if the partition is free.
    pub owner: Option<InstanceId>,
    /// The generation of the last claim.
    pub generation: Generation,
}

/// The data that an instance reads at a rebalance tick, from one statement snapshot per table.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// All live instances.
    pub members: Vec<Member>,
    /// The claim of each partition, indexed by its number.
    pub claims: [Claim; PARTITION_COUNT],
}

/// The default name of a process: the host name and the process id.
pub(crate) fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "instance" } else { host.trim() };
    format!("{host}-{}", std::process::id())
}
