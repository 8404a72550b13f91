//! What people look at and do, and the list of handlers.

use std::time::Duration;

use async_trait::async_trait;

use super::{Counts, FailedRecord, Filter, Instance, PartitionOwner, StoppedLane, StoreError};
use crate::{handler::Route, record::RecordId};

/// The most rows of a kind that one round of a purge deletes, or little more. If a round has deleted this
/// many, the caller purges again.
pub(crate) const PURGED_AT_ONCE: u64 = 200_000;

/// What to do with a failed record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Repair {
    /// Deliver it again, from attempt 1.
    Retry,
    /// Deliver it again with another payload.
    Replace(Vec<u8>),
    /// Delete it.
    Discard,
}

/// What people may do.
#[async_trait]
#[doc(hidden)]
pub trait AdminStore: Send + Sync + 'static {
    /// Counts by status and reason.
    async fn counts(&self) -> Result<Counts, StoreError>;
    /// All live instances, then those that have ended, the latest first.
    async fn instances(&self, limit: usize) -> Result<Vec<Instance>, StoreError>;
    /// All partitions, by their numbers.
    async fn partitions(&self) -> Result<Vec<PartitionOwner>, StoreError>;
    /// Stopped lanes with a record id above `after`, in that order.
    async fn stopped_lanes(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<StoppedLane>, StoreError>;
    /// Failed records with an id above `after`, in that order.
    async fn failed(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<FailedRecord>, StoreError>;
    /// The ids of the same records.
    async fn failed_ids(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<RecordId>, StoreError>;
    /// Repairs those of these records that have failed, and lets the lanes go on that they have stopped, in one
    /// transaction. Returns how many there were.
    async fn repair_all(&self, ids: &[RecordId], repair: &Repair) -> Result<usize, StoreError>;
    /// The same for one record. Returns whether there was such a failed record.
    async fn repair(&self, id: RecordId, repair: &Repair) -> Result<bool, StoreError> {
        Ok(self.repair_all(&[id], repair).await? == 1)
    }
    /// Deletes completed, archived and dedup rows older than this, and keys of the strict order that nobody
    /// has locked: in batches, up to a limit. Returns how many.
    async fn purge(&self, older_than: Duration, dedup_older_than: Duration) -> Result<u64, StoreError>;
    /// Publishes which handler takes which record type.
    async fn publish_routes(&self, routes: &[Route]) -> Result<(), StoreError>;
    /// All published routes.
    async fn routes(&self) -> Result<Vec<Route>, StoreError>;
    /// Takes a handler out of the published routes: nothing more is scheduled for it.
    async fn retire_handler(&self, handler: &str) -> Result<bool, StoreError>;
}
