//! What a store is told when it is opened.

use std::time::Duration;

use super::Tables;

/// What becomes of a completed record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
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
