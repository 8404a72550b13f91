//! Notifications between processes, on databases that have them.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;

/// Tells other processes that there may be work. A notification is a hint: polls find the work as well.
#[async_trait]
#[doc(hidden)]
pub trait Notifier: Send + Sync + 'static {
    /// Notifies all listeners of other processes.
    async fn notify(&self) -> Result<(), StoreError>;
    /// Begins to listen.
    ///
    /// # Errors
    /// An error of class [`Setup`](super::ErrorClass::Setup) if notifications do not arrive here.
    async fn listen(&self) -> Result<Box<dyn Listener>, StoreError>;
    /// Closes the notifying connection if it has sent nothing for `unused_for`.
    async fn close_idle(&self, unused_for: Duration);
}

/// Receives the notifications of other processes.
#[async_trait]
#[doc(hidden)]
pub trait Listener: Send {
    /// Returns when another process has notified, or may have while there was no listener.
    async fn recv(&mut self) -> Result<(), StoreError>;
}
