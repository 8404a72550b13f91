//! The life of the tables.

use async_trait::async_trait;

use super::{SchemaError, StoreError};

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
