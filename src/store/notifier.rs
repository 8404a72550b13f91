//! Telling other processes that there is work, where the database can.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;

/// Tells other processes that there may be work. Nothing relies on it.
#[async_trait]
#[doc(hidden)]
pub trait Notifier: Send + Sync + 'static {
    /// Notifies all others who listen.
    async fn notify(&self) -> Result<(), StoreError>;
    /// Begins to listen.
    ///
    /// # Errors
    /// Of a class that only a person can fix where notifications do not arrive.
    async fn listen(&self) -> Result<Box<dyn Listener>, StoreError>;
    /// Closes what has not notified for so long.
    async fn close_idle(&self, unused_for: Duration);
}

/// Receives the notifications of other processes.
#[async_trait]
#[doc(hidden)]
pub trait Listener: Send {
    /// Returns when somebody else has notified, or may have while nobody listened.
    async fn recv(&mut self) -> Result<(), StoreError>;
}
