//! Instances: the running processes that share the partitions, and what they see of one another.

use std::{cell::Cell, fmt, hash::BuildHasher, str::FromStr};

use uuid::Uuid;

use crate::partition::PARTITION_COUNT;

/// The identity of one running process, new at each start.
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
    /// The seed of the identities that this thread makes, and how many it has made; `None` but in a simulation.
    static SEED: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// The identities that this thread makes from now on follow from the seed: a simulation can make them again.
pub fn seed_identities(seed: u64) {
    SEED.set(Some((seed, 0)));
}

fn identity() -> Uuid {
    let Some((seed, count)) = SEED.get() else { return Uuid::now_v7() };
    SEED.set(Some((seed, count + 1)));
    // Sorted by their start, as all identities are; only the last bits look like chance.
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

/// The life of an instance row. `Stopped` and `Dead` are final: a process declared dead comes
/// back under a new identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InstanceState {
    /// Beats, and takes its share of the partitions.
    Active,
    /// Beats, finishes what it has, takes nothing more.
    Draining,
    /// Left by itself; its partitions are free.
    Stopped,
    /// Evicted by another instance; its partitions are free and its fence rows are closed.
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

/// How often a partition has changed its owner. Grows by exactly one at each claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub i64);

/// One instance as another sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub id: InstanceId,
    /// Its state as stored.
    pub state: InstanceState,
    /// Its beat counter. Observers watch whether it moves, never what time it was written.
    pub beat: i64,
}

/// Who owns a partition, and since which generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Claim {
    /// The owner, or `None` when the partition is free.
    pub owner: Option<InstanceId>,
    /// The generation of this claim.
    pub generation: Generation,
}

/// Everything an instance reads at a rebalance tick, from one statement snapshot per table.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// All live instances.
    pub members: Vec<Member>,
    /// The claim of each partition, by its number.
    pub claims: [Claim; PARTITION_COUNT],
}

/// The name of a process that was given none.
pub(crate) fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "instance" } else { host.trim() };
    format!("{host}-{}", std::process::id())
}
