//! Telling other processes that there is work, where the database can.

use async_trait::async_trait;

use super::StoreError;

/// Tells other processes that there may be work. Nothing relies on it.
#[async_trait]
#[doc(hidden)]
pub trait Bell: Send + Sync + 'static {
    /// Rings for all others who listen.
    async fn ring(&self) -> Result<(), StoreError>;
    /// Begins to listen.
    async fn listen(&self) -> Result<Box<dyn Listener>, StoreError>;
}

/// Hears another process ring.
#[async_trait]
#[doc(hidden)]
pub trait Listener: Send {
    /// Returns when somebody else has rung, or may have rung unheard.
    async fn heard(&mut self) -> Result<(), StoreError>;
}
