//! The store: everything a database must do for Keylane, as four traits over plain words.
//!
//! Only ages and delays cross this seam, never timestamps: the database's clock is the only wall
//! clock. Every write of an outcome carries a [`Guard`], which the database checks *by writing it*
//! in the same transaction; see `docs/guarantees.md`, "The fence".

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    instance::{ClusterView, Generation, InstanceId},
    partition::{Partition, PartitionSet},
    record::{Record, RecordId, Settlement, Stop},
    rules::frontier::{Horizon, Probe, Server},
};

mod admin;
mod bell;
mod error;
pub(crate) mod memory;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) mod sql;
mod tables;
mod transactional;

pub use admin::{AdminStore, Counts, FailedRecord, Mend, StoppedLane};
pub use bell::{Bell, Listener};
pub use error::{ErrorClass, OpenError, SchemaError, StoreError};
pub use tables::{BadName, Tables};
pub use transactional::{Transacted, TransactionalRun, Work};

pub(crate) use admin::PURGED_AT_ONCE;

/// What becomes of a completed record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completed {
    /// Its row is deleted: the fastest, and the table stays small.
    #[default]
    Delete,
    /// Its row moves to `outbox_archive` in the same statement.
    Archive,
    /// Its row stays, with status completed.
    Keep,
}

/// What a store must know at opening.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct StoreSettings {
    /// The names of the tables.
    pub tables: Tables,
    /// What becomes of completed records.
    pub completed: Completed,
    /// How long one database call may take.
    pub call_timeout: Duration,
    /// Commit settlements without waiting for the disk (PostgreSQL).
    pub async_settle: bool,
}

/// The right to write outcomes: a row of `outbox_fence` at a counter value. Each write moves the
/// counter on by one; an evictor closes the row, and every later write finds its value gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Whose.
    pub instance: InstanceId,
    /// Which of its guard rows: 0 is the settler's, transactional handlers have one each.
    pub slot: u32,
    /// The value that must be found.
    pub counter: i64,
}

impl Guard {
    /// The guard after a write under it.
    #[must_use]
    pub fn moved(self) -> Self {
        Self { counter: self.counter + 1, ..self }
    }

    /// The guard after [`RecordStore::resolve`] has raised it: by two, so that a write that did run
    /// and a raise whose own reply was lost can be told apart.
    #[must_use]
    pub fn raised(self) -> Self {
        Self { counter: self.counter + 2, ..self }
    }

    /// What a counter read after raising says about the write under this guard.
    pub fn resolution(self, counter: i64) -> Resolution {
        match counter {
            counter if counter == self.moved().counter => Resolution::Applied,
            counter if counter == self.raised().counter => Resolution::NotApplied,
            _ => Resolution::Closed,
        }
    }
}

/// Held records of a lane that return at once when it goes on; more of them return in steps.
pub(crate) const RETURNED_AT_ONCE: u64 = 1_000;
/// Held records that one step returns.
pub(crate) const RETURNED_BY_A_STEP: usize = 500;

/// The slot of the settler.
pub const SETTLER_SLOT: u32 = 0;
/// The counter of a closed guard row.
pub const CLOSED: i64 = -1;

/// A settle that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Records written, other than holds.
    pub applied: usize,
    /// Records held. Fewer than asked: a lane was released meanwhile, its records stay pending.
    pub held: usize,
    /// Lanes that go on in steps, or may: their stops are to be read again.
    pub releasing: usize,
    /// The number of the transaction that wrote them, where the database gives numbers, and the server
    /// that gave it.
    pub number: Option<(i64, Server)>,
}

/// Some ids of the table to look at, in their order.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Sweep<'a> {
    /// Whose records.
    pub partitions: PartitionSet,
    /// The first id.
    pub from: RecordId,
    /// How many ids from there.
    pub reach: i64,
    /// Ids to leave out, whether at `from`, above or below.
    pub skip: &'a [RecordId],
    /// Records at most.
    pub limit: usize,
}

impl Sweep<'_> {
    /// The ids to leave out that are not below `from`.
    pub(crate) fn skip_above(&self) -> Vec<RecordId> {
        self.skip.iter().copied().filter(|id| *id >= self.from).collect()
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

/// Why a settle was not written, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The guard row was closed or moved on by another: this instance has been evicted.
    #[error("fenced: the guard row of this instance is gone or closed")]
    Fenced,
    /// The statement failed or its answer was lost: ask [`RecordStore::resolve`].
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of a settle whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It was written.
    Applied,
    /// It was not, and it never will be: the counter has been raised, see [`Guard::raised`].
    NotApplied,
    /// This instance has been evicted.
    Closed,
}

/// What the delivery wing may do.
#[async_trait]
#[doc(hidden)]
pub trait RecordStore: Send + Sync + 'static {
    /// Pending records of these partitions in turn, each partition's from its head in id order,
    /// without those in `skip`.
    async fn fetch(
        &self,
        partitions: &[Partition],
        skip: &[RecordId],
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// Where the head of these partitions is.
    async fn probe(&self, partitions: PartitionSet) -> Result<Probe, StoreError>;

    /// Pending records in id order, whatever their partition, and the horizon of the same moment. A
    /// database without numbers of transactions adds pending records below `from`, if there are any.
    async fn sweep(&self, sweep: Sweep<'_>) -> Result<(Vec<Record>, Horizon), StoreError>;

    /// A number that moves whenever another connection has committed, from a database that tells it for next
    /// to nothing.
    async fn version(&self) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    /// Delayed records of these partitions whose time has come, the longest due first; and how often the
    /// cluster has changed, see [`ClusterStore`].
    async fn due(
        &self,
        partitions: PartitionSet,
        skip: &[RecordId],
        limit: usize,
    ) -> Result<(Vec<Record>, i64), StoreError>;

    /// The stopped lanes of these partitions.
    async fn stops(&self, partitions: PartitionSet) -> Result<Vec<Stop>, StoreError>;

    /// Crashes of earlier owners of these partitions, and of calls there that had not ended.
    async fn suspicions(&self, partitions: PartitionSet) -> Result<Vec<Suspicion>, StoreError>;

    /// Notes that an instance is about to handle a record: a crash of it counts against the record until
    /// [`RecordStore::end_call`].
    async fn note_call(&self, me: InstanceId, partition: Partition, id: RecordId) -> Result<(), StoreError>;

    /// The call has ended, or the record is not tried again: what was noted of it is gone.
    async fn end_call(&self, id: RecordId) -> Result<(), StoreError>;

    /// Nothing has crashed here for long: what was counted of partitions that `me` owns is forgotten.
    async fn calm(&self, me: InstanceId, partitions: PartitionSet) -> Result<(), StoreError>;

    /// Writes outcomes and moves the guard's counter on, all or nothing.
    async fn settle(&self, guard: Guard, settlements: &[Settlement]) -> Result<Settled, SettleError>;

    /// Finds out what became of a settle whose answer was lost, and makes that final: raises the
    /// counter by two if it still has the guard's value, then reads it. May be repeated.
    async fn resolve(&self, guard: Guard) -> Result<Resolution, StoreError>;
}

/// A process that joins.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct NewInstance {
    /// New at each start.
    pub id: InstanceId,
    /// For people: `service-7f` or the like.
    pub name: String,
    /// The version of the library.
    pub version: String,
    /// How many guard rows it needs.
    pub guard_rows: u32,
}

/// What the cluster wing may do. Whatever lets others claim or release something (all but beats, views
/// and claims) moves the count of the cluster's changes on.
#[async_trait]
#[doc(hidden)]
pub trait ClusterStore: Send + Sync + 'static {
    /// Writes the instance row and its guard rows (counters at 0).
    async fn join(&self, instance: &NewInstance) -> Result<(), StoreError>;
    /// Moves the beat counter on. Returns the view as well, in which its own beat may be the one before;
    /// `None`: this instance has been evicted.
    async fn beat(&self, me: InstanceId) -> Result<Option<ClusterView>, StoreError>;
    /// All live members and all claims.
    async fn view(&self) -> Result<ClusterView, StoreError>;
    /// Declares a live instance dead and closes its guard rows, in one transaction. With a beat:
    /// only if the beat still stands, and it counts as a crash. Returns whether it was done.
    async fn evict(&self, id: InstanceId, beat: Option<i64>) -> Result<bool, StoreError>;
    /// Claims partitions by compare-and-set on their generation, only free ones and those of dead or
    /// stopped owners. Returns all that `me` owns afterwards.
    async fn claim(
        &self,
        me: InstanceId,
        wanted: &[(Partition, Generation)],
    ) -> Result<Vec<(Partition, Generation)>, StoreError>;
    /// Gives partitions back, each only in the generation it was claimed in: a release that arrives
    /// late must not free what was claimed again meanwhile. Returns how many were freed.
    async fn release(&self, me: InstanceId, claims: &[(Partition, Generation)]) -> Result<usize, StoreError>;
    /// Turns an active instance into a draining one.
    async fn drain(&self, me: InstanceId) -> Result<(), StoreError>;
    /// Leaves: closes the guard rows, frees what is still owned, and turns STOPPED.
    async fn leave(&self, me: InstanceId) -> Result<(), StoreError>;
    /// Deletes rows of stopped and dead instances that own nothing and have been silent that long, some
    /// thousands at most.
    async fn forget(&self, silent_for: Duration) -> Result<usize, StoreError>;
}

/// What a schema needs.
#[async_trait]
#[doc(hidden)]
pub trait SchemaStore: Send + Sync + 'static {
    /// Brings the schema up to this build's version; safe to run by several at once.
    async fn migrate(&self) -> Result<(), SchemaError>;
    /// Refuses a schema that does not fit this build.
    async fn check(&self) -> Result<(), SchemaError>;
    /// What tells these tables from all others. Works behind any pooler.
    async fn identity(&self) -> Result<String, StoreError>;
    /// The statements that `migrate` would run on an empty database, for a DBA.
    fn script(&self) -> String;
}

/// All of them.
#[async_trait]
#[doc(hidden)]
pub trait Store: RecordStore + ClusterStore + AdminStore + SchemaStore {
    /// Whether the heartbeat may have a thread and a runtime of its own.
    fn own_thread(&self) -> bool;
    /// The same database over connections of its own, for the heartbeat's runtime.
    fn for_heartbeat(&self) -> Arc<dyn Store>;
    /// The statements by name, as they are sent but for lists and parameters; for those who explain them.
    fn statements(&self) -> Vec<(&'static str, Arc<str>)> {
        Vec::new()
    }
    /// Closes connections that have not been used for so long; they are opened again when needed.
    async fn rest(&self, _: Duration) {}
    /// What tells other processes of commits, over connections of its own; `None` where the database
    /// has nothing of the kind.
    fn bell(&self) -> Option<Arc<dyn Bell>> {
        None
    }
}
