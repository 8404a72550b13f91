//! The store in memory: every table of an outbox behind one mutex.
//!
//! A call of the store is one critical section, so statements and transactions of the store are atomic and
//! serial by construction: an evictor that comes during a settle waits for the mutex. The writes of a user's
//! transaction are kept aside until its commit ([`connection`]), but its record ids are drawn at once, as
//! from a sequence: a later id can become visible first.

mod admin;
mod cancel;
mod claims;
mod client;
mod cluster;
mod connection;
mod database;
mod dead_letters;
mod faults;
mod journal;
mod letters;
mod locks;
mod outbox;
mod pool;
mod records;
mod rows;
mod settle;
mod state;
mod store;
mod transaction;
mod transactional;

pub use connection::MemoryConnection;
pub use faults::Fault;
pub use pool::{Memory, MemoryPool};
pub use transaction::{MemorySavepoint, MemoryTransaction};

/// The conditions that a simulation sets, and the writes that it receives.
pub mod conditions {
    pub use super::{
        client::{Conditions, Passage},
        journal::Written,
        pool::Moment,
    };
}
