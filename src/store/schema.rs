//! The calls of the schema: create, upgrade and check the tables.

use std::ops::RangeInclusive;

use async_trait::async_trait;

use super::{SchemaError, StoreError};

/// The versions of the schema that this build works with. The migrations of this build make the version
/// before the last one. A migration only adds, and the build before works without the additions, so each
/// build works with the version after its own.
pub(crate) const SCHEMA_VERSIONS: RangeInclusive<i64> = 5..=6;

/// The calls of the schema.
#[async_trait]
#[doc(hidden)]
pub trait SchemaStore: Send + Sync + 'static {
    /// Upgrades the schema to the version of this build. Several processes may migrate at once.
    async fn migrate(&self) -> Result<(), SchemaError>;
    /// Fails if the schema does not fit this build.
    async fn check(&self) -> Result<(), SchemaError>;
    /// A text that identifies these tables among all databases. Works behind any pooler.
    async fn identity(&self) -> Result<String, StoreError>;
    /// The statements that give these rights to the database user `to`.
    fn grants(&self, rights: Rights, to: &str) -> String;
    /// The statements that `migrate` would run on tables of version `from`, for a DBA. Version 0 means no
    /// tables.
    fn script(&self, from: i64) -> String;
}

/// The rights of a database user on an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rights {
    /// Schedules.
    Producer,
    /// Delivers and schedules.
    Worker,
    /// Reads lists, and repairs, purges and retires as [`Outbox`](crate::Outbox) offers it.
    Admin,
}
