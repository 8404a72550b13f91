//! The life of the tables.

use std::ops::RangeInclusive;

use async_trait::async_trait;

use super::{SchemaError, StoreError};

/// The versions of the schema that this build works with. It makes the last but one: a migration only adds what
/// the build before does not miss, so that each build works with the version after its own.
pub(crate) const SCHEMA_VERSIONS: RangeInclusive<i64> = 4..=5;

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
    /// The statements that give these rights to a user of the database.
    fn grants(&self, rights: Rights, to: &str) -> String;
    /// The statements that `migrate` would run on tables of version `from`, 0 for none, for a DBA.
    fn script(&self, from: i64) -> String;
}

/// What a user of the database may do with an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rights {
    /// Schedule.
    Producer,
    /// Deliver, and schedule.
    Worker,
    /// Look, and do what [`Outbox`](crate::Outbox) offers to people: retry, discard, replace, purge, retire.
    Admin,
}
