//! The store: all that Keylane needs of a database, as six traits over plain values, one file per trait.
//!
//! * [`RecordStore`]: the delivery wing reads records and writes outcomes.
//! * [`ClusterStore`]: the cluster wing reads and writes members and claims.
//! * [`ClaimStore`]: claimed mode takes records and writes their outcomes.
//! * [`AdminStore`]: what people read and do, and the list of handlers.
//! * [`DeadLetterStore`]: records that have failed for good are moved away, if their route says so.
//! * [`SchemaStore`]: the tables are created, upgraded and checked.
//!
//! A [`Store`] has all of them. Only ages and delays cross this seam, never timestamps: the clock of the
//! database is the only wall clock. Every write of an outcome carries a [`FenceRow`], which the database
//! checks *by writing the row* in the same transaction; see `docs/guarantees.md`, "The fence".

mod admin;
mod backend;
mod claims;
mod cluster;
mod dead_letters;
mod error;
mod fence;
mod home;
pub(crate) mod memory;
mod notifier;
mod overview;
mod records;
mod schema;
mod settings;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) mod sql;
mod tables;
mod transactional;

pub use admin::{AdminStore, Repair};
pub use backend::Store;
pub use claims::{ClaimEnd, ClaimOutcome, ClaimStore, Claimed, Claiming, Mode, Source};
pub use cluster::{ClusterStore, NewInstance};
pub use dead_letters::{DeadLetter, DeadLetterCause, DeadLetterStore};
pub use error::{ErrorClass, OpenError, SchemaError, StoreError};
pub use fence::{CLOSED, FenceRow, Resolution, SETTLER_SLOT, SPARE_ROWS};
pub use notifier::{Listener, Notifier};
pub use overview::{Counts, FailedRecord, Filter, Instance, PartitionOwner, StoppedLane};
pub use records::{Handlers, IdScan, Pick, RecordStore, SettleError, Settled, Suspicion};
pub use schema::{Rights, SchemaStore};
pub use settings::{Completed, DatabaseConfig, StoreSettings};
pub use tables::{BadName, Tables};
pub use transactional::{Transacted, TransactionalRun, Work};

pub(crate) use admin::PURGED_AT_ONCE;
pub(crate) use home::{HomeServer, OTHER_SERVER};
pub(crate) use records::{RETURNED_AT_ONCE, RETURNED_BY_A_STEP};
pub(crate) use schema::SCHEMA_VERSIONS;
pub(crate) use transactional::{ENDED, NESTED};
