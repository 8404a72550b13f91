//! What people read and do, and the list of handlers.

use std::time::Duration;

use async_trait::async_trait;

use super::{Counts, FailedRecord, Filter, Instance, PartitionOwner, StoppedLane, StoreError};
use crate::{handler::Route, record::RecordId};

/// The most rows per kind that one round of a purge deletes, plus a part of a batch. If a round has deleted
/// this many, the caller purges again.
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

/// The calls of the admin: lists, repairs, purges and the published routes.
#[async_trait]
#[doc(hidden)]
pub trait AdminStore: Send + Sync + 'static {
    /// Numbers of records per status and of stopped lanes per reason.
    async fn counts(&self) -> Result<Counts, StoreError>;
    /// All live instances, then the stopped and dead ones, the latest first; at most `limit`.
    async fn instances(&self, limit: usize) -> Result<Vec<Instance>, StoreError>;
    /// All partitions in the order of their numbers.
    async fn partitions(&self) -> Result<Vec<PartitionOwner>, StoreError>;
    /// At most `limit` stopped lanes whose stopping record has an id above `after`, in id order.
    async fn stopped_lanes(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<StoppedLane>, StoreError>;
    /// At most `limit` failed records with an id above `after`, in id order.
    async fn failed(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<FailedRecord>, StoreError>;
    /// The ids of the records that [`failed`](Self::failed) returns.
    async fn failed_ids(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<RecordId>, StoreError>;
    /// Repairs the records of `ids` that have failed and releases the lanes that these records have stopped,
    /// in one transaction. Returns the number of repaired records.
    async fn repair_all(&self, ids: &[RecordId], repair: &Repair) -> Result<usize, StoreError>;
    /// Repairs one record. Returns false if no failed record has this id.
    async fn repair(&self, id: RecordId, repair: &Repair) -> Result<bool, StoreError> {
        Ok(self.repair_all(&[id], repair).await? == 1)
    }
    /// Deletes completed and archived rows older than `older_than`, dedup rows older than `dedup_older_than`,
    /// and unlocked keys of the strict order: in batches, up to a limit. Returns the number of deleted rows.
    async fn purge(&self, older_than: Duration, dedup_older_than: Duration) -> Result<u64, StoreError>;
    /// Publishes pairs of a handler and a record type that it takes.
    async fn publish_routes(&self, routes: &[Route]) -> Result<(), StoreError>;
    /// All published routes.
    async fn routes(&self) -> Result<Vec<Route>, StoreError>;
    /// Deletes the published routes of a handler, so that nothing more is scheduled for the handler. Returns
    /// false if there were none.
    async fn retire_handler(&self, handler: &str) -> Result<bool, StoreError>;
}
