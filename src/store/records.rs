//! The calls of the delivery wing: read records, write outcomes.

use std::sync::Arc;

use async_trait::async_trait;

use super::{FenceRow, Resolution, StoreError};
use crate::{
    instance::InstanceId,
    name::Name,
    partition::{Partition, PartitionSet},
    record::{Record, RecordId, Settlement, Stop},
    rules::{
        horizon::{Bystanders, Head, Horizon, Server},
        witnesses::Witness,
    },
};

/// The calls of the delivery wing.
#[async_trait]
#[doc(hidden)]
pub trait RecordStore: Send + Sync + 'static {
    /// Pending records of these partitions: partition after partition, in id order from the head of each.
    async fn fetch_by_partition(
        &self,
        partitions: &[Partition],
        pick: Pick<'_>,
    ) -> Result<Vec<Arc<Record>>, StoreError>;

    /// The id of the head of these partitions, without the records in `skip`.
    async fn find_head(&self, partitions: PartitionSet, skip: &[RecordId]) -> Result<Head, StoreError>;

    /// Reads the last id, then draws the number of a transaction. `None` on a database without such numbers.
    async fn draw_number(&self) -> Result<Option<(Witness, Server)>, StoreError> {
        Ok(None)
    }

    /// Which of these transactions have written no record. `None` on a database without such numbers.
    async fn find_bystanders(&self, _: &[i64]) -> Result<Option<Bystanders>, StoreError> {
        Ok(None)
    }

    /// Pending records of a range of ids in id order, and the horizon of the same moment. A database without
    /// numbers of transactions also returns pending records below `from`, and what it has seen ahead. A database
    /// with numbers may return no records if one of the transactions in `open` has ended.
    async fn scan_by_id(&self, scan: IdScan<'_>) -> Result<(Vec<Arc<Record>>, Horizon), StoreError>;

    /// A number that changes with each commit of another connection. `None` unless the database reads it at
    /// almost no cost.
    async fn version(&self) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    /// Delayed records of these partitions whose time has come, the longest due first; and the count of the
    /// cluster's changes, see [`ClusterStore`](super::ClusterStore).
    async fn fetch_due(
        &self,
        partitions: PartitionSet,
        pick: Pick<'_>,
    ) -> Result<(Vec<Arc<Record>>, i64), StoreError>;

    /// The stopped lanes of these partitions.
    async fn stops(&self, partitions: PartitionSet) -> Result<Vec<Stop>, StoreError>;

    /// The counts of crashes of the earlier owners of these partitions, and of tracked calls in these
    /// partitions.
    async fn suspicions(&self, partitions: PartitionSet) -> Result<Vec<Suspicion>, StoreError>;

    /// Writes that an instance is about to handle a record. A crash of the instance then counts against the
    /// record until [`RecordStore::end_tracking`].
    async fn track_call(&self, me: InstanceId, partition: Partition, id: RecordId) -> Result<(), StoreError>;

    /// Deletes what [`RecordStore::track_call`] wrote of a record: its call has ended, or the record is not
    /// tried again.
    async fn end_tracking(&self, id: RecordId) -> Result<(), StoreError>;

    /// Clears the counts of crashes of partitions that `me` owns, because no owner has crashed for a long
    /// time.
    async fn calm(&self, me: InstanceId, partitions: PartitionSet) -> Result<(), StoreError>;

    /// Writes outcomes and moves the counter of the fence row on, all or nothing.
    async fn settle(&self, fence: FenceRow, settlements: &[Settlement]) -> Result<Settled, SettleError>;

    /// Finds out what became of a settle whose reply was lost, and makes the result final: if the counter
    /// still has the value of `fence`, moves it on by two, then reads it. May be repeated.
    async fn resolve(&self, fence: FenceRow) -> Result<Resolution, StoreError>;
}

/// The result of a settle that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The number of records written, without holds.
    pub applied: usize,
    /// The number of records held. If it is lower than asked for, a lane was released meanwhile, and its
    /// records stay pending.
    pub held: usize,
    /// The number of lanes that are released in steps, or may be: the caller reads their stops again.
    pub releasing: usize,
    /// The number of the transaction that wrote the settle, and the server that gave the number. `None` on a
    /// database without such numbers.
    pub number: Option<(i64, Server)>,
}

/// Why a settle was not written, or may not have been written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// Another process has closed the fence row or moved it on: this instance has been evicted.
    #[error("fenced: the fence row of this instance is gone or closed")]
    Fenced,
    /// The statement failed or its reply was lost: call [`RecordStore::resolve`].
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which records a fetch takes.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Pick<'a> {
    /// The ids to leave out.
    pub skip: &'a [RecordId],
    /// The handlers whose records are taken.
    pub handlers: &'a Handlers,
    /// The most records.
    pub limit: usize,
}

impl<'a> Pick<'a> {
    /// The records of all handlers.
    pub fn new(skip: &'a [RecordId], limit: usize) -> Self {
        Self { skip, handlers: &Handlers::Every, limit }
    }
}

/// The handlers whose records a fetch takes. The ids are valid names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub enum Handlers {
    /// All handlers.
    #[default]
    Every,
    /// One handler.
    Only(Name),
    /// All handlers but these, known to this build or not.
    Except(Vec<Name>),
}

impl Handlers {
    /// Whether a fetch takes the records of this handler.
    pub fn include(&self, handler: &str) -> bool {
        match self {
            Self::Every => true,
            Self::Only(one) => *one == *handler,
            Self::Except(others) => others.iter().all(|other| *other != *handler),
        }
    }
}

/// A range of record ids to scan, in id order.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct IdScan<'a> {
    /// The partitions whose records are taken.
    pub partitions: PartitionSet,
    /// The first id.
    pub from: RecordId,
    /// The number of ids in the range.
    pub reach: i64,
    /// If not empty: only these ids of the range, as first and last ids in ascending order. Always empty on a
    /// database without numbers of transactions.
    pub within: &'a [(RecordId, RecordId)],
    /// The most ids that the horizon lists of those that the snapshot sees. Always 0 on a database without
    /// numbers.
    pub list: usize,
    /// Numbers of transactions. If one of them has ended, the caller discards the result.
    pub open: &'a [i64],
    /// The ids that an earlier scan has seen ahead, in order. Only these are taken, and nothing below is read.
    pub ahead: Option<&'a [RecordId]>,
    /// Which records of the range are taken. The ids to leave out may be below the range, too.
    pub pick: Pick<'a>,
}

impl IdScan<'_> {
    /// The ids to leave out that are at or above `from`.
    pub(crate) fn skip_above(&self) -> Vec<RecordId> {
        self.pick.skip.iter().copied().filter(|id| *id >= self.from).collect()
    }
}

/// Crashes that evictors have counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// The partition whose owners crashed.
    pub partition: Partition,
    /// The record of the tracked calls that had not ended; `None` if the count is of the partition.
    pub record: Option<RecordId>,
    /// The number of crashes.
    pub crashes: u32,
}

/// The most held records of a lane that return at once when the lane is released. More records return in
/// steps.
pub(crate) const RETURNED_AT_ONCE: u64 = 1_000;
/// The number of held records that one step returns.
pub(crate) const RETURNED_BY_A_STEP: usize = 500;
