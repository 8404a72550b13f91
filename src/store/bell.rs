//! Telling other processes that there is work, where the database can.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;

/// Tells other processes that there may be work. Nothing relies on it.
#[async_trait]
#[doc(hidden)]
pub trait Bell: Send + Sync + 'static {
    /// Rings for all others who listen.
    async fn ring(&self) -> Result<(), StoreError>;
    /// Begins to listen.
    ///
    /// # Errors
    /// Of a class that only a person can fix where notifications do not arrive.
    async fn listen(&self) -> Result<Box<dyn Listener>, StoreError>;
    /// Closes what has not rung for so long.
    async fn close_idle(&self, unused_for: Duration);
}

/// Hears another process ring.
#[async_trait]
#[doc(hidden)]
pub trait Listener: Send {
    /// Returns when somebody else has rung, or may have rung unheard.
    async fn heard(&mut self) -> Result<(), StoreError>;
}
