//! What people look at and do, and the list of handlers.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;
use crate::{
    handler::Route,
    record::{Lane, RecordId, Status, StopReason},
};

/// Rows of a kind that one round of a purge deletes at most, or little more: whoever purges counts on the next
/// round if one has come so far.
pub(crate) const PURGED_AT_ONCE: u64 = 200_000;

/// Numbers of records, for people and alarms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Records by status.
    pub records: Vec<(Status, u64)>,
    /// Stopped lanes by reason.
    pub stopped_lanes: Vec<(StopReason, u64)>,
}

impl Counts {
    /// Records of this status.
    pub fn of(&self, status: Status) -> u64 {
        self.records.iter().filter(|(found, _)| *found == status).map(|(_, count)| count).sum()
    }
}

/// A lane that stands still, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoppedLane {
    /// Which lane.
    pub lane: Lane,
    /// Why.
    pub reason: StopReason,
    /// The record that stops it.
    pub record: RecordId,
    /// The identity of its event.
    pub event_id: Option<Uuid>,
    /// Its record type.
    pub record_type: Option<String>,
    /// Its failed attempts.
    pub attempts: u32,
    /// The last error, cut to 1,000 bytes.
    pub last_error: Option<String>,
    /// Records held behind it.
    pub held: u64,
    /// How long it has stood still.
    pub since: Duration,
}

/// A record that has failed for good.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedRecord {
    /// The record.
    pub id: RecordId,
    /// The identity of its event.
    pub event_id: Uuid,
    /// Its lane.
    pub lane: Lane,
    /// Its record type.
    pub record_type: String,
    /// Its failed attempts.
    pub attempts: u32,
    /// The last error, cut to 1,000 bytes.
    pub last_error: Option<String>,
}

/// What to do with a failed record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Mend {
    /// Deliver it again, from attempt 1.
    Retry,
    /// Deliver it again with another payload.
    Replace(Vec<u8>),
    /// Give it up: it is deleted.
    Discard,
}

/// What people may do.
#[async_trait]
#[doc(hidden)]
pub trait AdminStore: Send + Sync + 'static {
    /// Counts by status and reason.
    async fn counts(&self) -> Result<Counts, StoreError>;
    /// Stopped lanes with a record id above `after`, in that order.
    async fn stopped_lanes(&self, after: RecordId, limit: usize) -> Result<Vec<StoppedLane>, StoreError>;
    /// Failed records with an id above `after`, in that order.
    async fn failed(&self, after: RecordId, limit: usize) -> Result<Vec<FailedRecord>, StoreError>;
    /// Mends a failed record, and lets the lane go on that it has stopped. Returns whether there
    /// was such a failed record.
    async fn mend(&self, id: RecordId, mend: &Mend) -> Result<bool, StoreError>;
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
