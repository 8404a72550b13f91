//! An outbox in memory: the semantics of the databases on tokio's clock, for tests and simulations.
//!
//! [`MemoryPool`] replaces a database pool and [`MemoryTransaction`] its transaction: records get their ids
//! when they are scheduled and appear when the transaction commits, fences refuse, lanes stop. Time is
//! [`tokio::time::Instant`], so under `#[tokio::test(start_paused = true)]` an hour of retries takes no time.
//! The data is dropped with the last clone of the pool.
//!
//! A transaction can write one thing besides records: [effects], texts that appear at the commit.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), keylane::StoreError> {
//! let pool = keylane::memory::MemoryPool::new();
//! let mut tx = pool.begin().await?;
//! tx.push_effect("order 1 booked");
//! assert!(pool.effects().is_empty());
//! tx.commit().await?;
//! assert_eq!(pool.effects(), ["order 1 booked"]);
//! # Ok(()) }
//! ```
//!
//! [effects]: MemoryConnection::push_effect

pub use crate::store::memory::{
    Fault, Memory, MemoryConnection, MemoryPool, MemorySavepoint, MemoryTransaction,
};
