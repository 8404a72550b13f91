//! The settings of a store.

use std::time::Duration;

use super::Tables;

/// What becomes of a completed record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Completed {
    /// The row is deleted: the fastest way, and the table stays small.
    #[default]
    Delete,
    /// The row moves to `outbox_archive` in the same statement.
    Archive,
    /// The row stays, with status completed.
    Keep,
}

/// The settings of a store. Fixed when the store is opened.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct StoreSettings {
    /// The names of the tables.
    pub tables: Tables,
    /// What becomes of completed records.
    pub completed: Completed,
    /// The longest time per database call.
    pub call_timeout: Duration,
    /// Whether a settle commits without waiting for the disk (PostgreSQL).
    pub async_settle: bool,
}
