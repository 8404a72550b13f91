//! What the delivery wing may do: read records, write outcomes.

use async_trait::async_trait;

use super::{FenceRow, Resolution, StoreError};
use crate::{
    instance::InstanceId,
    name::Name,
    partition::{Partition, PartitionSet},
    record::{Record, RecordId, Settlement, Stop},
    rules::{
        watermark::{Bystanders, Head, Horizon, Server},
        witnesses::Witness,
    },
};

/// What the delivery wing may do.
#[async_trait]
#[doc(hidden)]
pub trait RecordStore: Send + Sync + 'static {
    /// Pending records of these partitions in turn, each partition's from its head in id order.
    async fn fetch_by_partition(
        &self,
        partitions: &[Partition],
        pick: Pick<'_>,
    ) -> Result<Vec<Record>, StoreError>;

    /// Where the head of these partitions is.
    async fn find_head(&self, partitions: PartitionSet) -> Result<Head, StoreError>;

    /// Reads the last id, then gives out the number of a transaction, where numbers count.
    async fn draw_number(&self) -> Result<Option<(Witness, Server)>, StoreError> {
        Ok(None)
    }

    /// Which of these transactions have written no record, where numbers count.
    async fn find_bystanders(&self, _: &[i64]) -> Result<Option<Bystanders>, StoreError> {
        Ok(None)
    }

    /// Pending records in id order, whatever their partition, and the horizon of the same moment. A
    /// database without numbers of transactions adds pending records below `from`, if there are any. One
    /// with numbers may bring none, if one of the transactions that are named has ended.
    async fn scan_by_id(&self, scan: IdScan<'_>) -> Result<(Vec<Record>, Horizon), StoreError>;

    /// A number that moves whenever another connection has committed, if the database tells it at almost no
    /// cost.
    async fn version(&self) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    /// Delayed records of these partitions whose time has come, the longest due first; and how often the
    /// cluster has changed, see [`ClusterStore`](super::ClusterStore).
    async fn fetch_due(
        &self,
        partitions: PartitionSet,
        pick: Pick<'_>,
    ) -> Result<(Vec<Record>, i64), StoreError>;

    /// The stopped lanes of these partitions.
    async fn stops(&self, partitions: PartitionSet) -> Result<Vec<Stop>, StoreError>;

    /// Crashes of earlier owners of these partitions, and of calls there that had not ended.
    async fn suspicions(&self, partitions: PartitionSet) -> Result<Vec<Suspicion>, StoreError>;

    /// Tracks that an instance is about to handle a record: a crash of it counts against the record until
    /// [`RecordStore::end_tracking`].
    async fn track_call(&self, me: InstanceId, partition: Partition, id: RecordId) -> Result<(), StoreError>;

    /// The call has ended, or the record is not tried again: what was tracked of it is gone.
    async fn end_tracking(&self, id: RecordId) -> Result<(), StoreError>;

    /// Clears the counts of crashes of partitions that `me` owns, because nothing has crashed there for long.
    async fn calm(&self, me: InstanceId, partitions: PartitionSet) -> Result<(), StoreError>;

    /// Writes outcomes and moves the fence row's counter on, all or nothing.
    async fn settle(&self, fence: FenceRow, settlements: &[Settlement]) -> Result<Settled, SettleError>;

    /// Finds out what became of a settle whose answer was lost, and makes that final: moves the
    /// counter by two if it still has the fence row's value, then reads it. May be repeated.
    async fn resolve(&self, fence: FenceRow) -> Result<Resolution, StoreError>;
}

/// A settle that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Records written, other than holds.
    pub applied: usize,
    /// Records held. If they are fewer than asked for, a lane was released meanwhile, and its records stay
    /// pending.
    pub held: usize,
    /// Lanes that go on in steps, or may: their stops are to be read again.
    pub releasing: usize,
    /// The number of the transaction that wrote them, where the database gives numbers, and the server
    /// that gave it.
    pub number: Option<(i64, Server)>,
}

/// Why a settle was not written, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The fence row was closed or moved on by another: this instance has been evicted.
    #[error("fenced: the fence row of this instance is gone or closed")]
    Fenced,
    /// The statement failed or its answer was lost: ask [`RecordStore::resolve`].
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a fetch takes of the records that it meets.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Pick<'a> {
    /// Ids to leave out.
    pub skip: &'a [RecordId],
    /// Of which handlers.
    pub handlers: &'a Handlers,
    /// Records at most.
    pub limit: usize,
}

impl<'a> Pick<'a> {
    /// The records of every handler.
    pub fn new(skip: &'a [RecordId], limit: usize) -> Self {
        Self { skip, handlers: &Handlers::Every, limit }
    }
}

/// The handlers whose records a fetch brings, by their ids, which are valid names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub enum Handlers {
    /// All.
    #[default]
    Every,
    /// One.
    Only(Name),
    /// All others, whether this build knows them or not.
    Except(Vec<Name>),
}

impl Handlers {
    /// Whether a fetch brings the records of this handler.
    pub fn include(&self, handler: &str) -> bool {
        match self {
            Self::Every => true,
            Self::Only(one) => *one == *handler,
            Self::Except(others) => others.iter().all(|other| *other != *handler),
        }
    }
}

/// Some ids of the table to scan, in their order.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct IdScan<'a> {
    /// Of which handlers.
    pub partitions: PartitionSet,
    /// The first id.
    pub from: RecordId,
    /// How many ids from there.
    pub reach: i64,
    /// Numbers of transactions: if one of them has ended, what is read does not count.
    pub open: &'a [i64],
    /// Which of them; the ids to leave out may be at `from`, above or below.
    pub pick: Pick<'a>,
}

impl IdScan<'_> {
    /// The ids to leave out that are not below `from`.
    pub(crate) fn skip_above(&self) -> Vec<RecordId> {
        self.pick.skip.iter().copied().filter(|id| *id >= self.from).collect()
    }
}

/// Crashes that were counted by those who declared instances dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Where.
    pub partition: Partition,
    /// The record whose calls had not ended; `None`: of whatever the partition's owners were at.
    pub record: Option<RecordId>,
    /// How many.
    pub crashes: u32,
}

/// Held records of a lane that return at once when it goes on; more of them return in steps.
pub(crate) const RETURNED_AT_ONCE: u64 = 1_000;
/// Held records that one step returns.
pub(crate) const RETURNED_BY_A_STEP: usize = 500;
