//! The store in memory: every table of an outbox behind one mutex.
//!
//! A call of the store is one critical section, so statements and transactions of the store are atomic and
//! serial by construction: an evictor that comes during a settle waits for the mutex. The writes of a user's
//! transaction are kept aside until its commit ([`connection`]), but its record ids are drawn at once, as
//! from a sequence: a later id can become visible first.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tokio::time::Instant;

use self::{faults::Faults, journal::Written, locks::Locks, outbox::Outbox};
use super::Tables;
use crate::record::RecordId;

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
mod locks;
mod outbox;
mod pool;
mod records;
mod rows;
mod settle;
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

/// The state shared by all clones of a pool.
#[derive(Debug)]
struct Shared {
    data: Mutex<Data>,
    locks: Arc<Locks>,
    faults: Faults,
    /// The same moment on both clocks. The wall clock of the database advances with tokio's clock. Never
    /// changes.
    started: (Instant, SystemTime),
}

/// The committed state.
#[derive(Clone, Debug, Default)]
struct Data {
    /// One outbox per prefix and schema.
    outboxes: BTreeMap<Tables, Outbox>,
    effects: Vec<String>,
    /// The number of the server. Moved on by a failover, after which ids and numbers have another history.
    server: i64,
    /// Whether writes are kept for a client with conditions. Set when such a client is made.
    journaled: bool,
    /// The ids that are used up between two ids.
    ids_between: RecordId,
}

impl Shared {
    fn new() -> Self {
        Self {
            data: Mutex::default(),
            locks: Arc::default(),
            faults: Faults::default(),
            started: (Instant::now(), SystemTime::now()),
        }
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts a time of the wall clock to tokio's clock.
    fn instant_of(&self, time: SystemTime) -> Option<Instant> {
        let (instant, wall) = self.started;
        match time.duration_since(wall) {
            Ok(after) => instant.checked_add(after),
            Err(before) => instant.checked_sub(before.duration()),
        }
    }
}

impl Data {
    fn outbox(&mut self, tables: &Tables) -> &mut Outbox {
        let (server, journaled, between) = (self.server, self.journaled, self.ids_between);
        self.outboxes.entry(tables.clone()).or_insert_with(|| {
            let mut new = Outbox::new(server, journaled);
            new.use_up_between(between);
            new
        })
    }

    /// Draws a number in each outbox for a transaction that begins.
    fn begin_everywhere(&mut self) -> Vec<(Tables, i64)> {
        self.outboxes.iter_mut().map(|(tables, outbox)| (tables.clone(), outbox.begin())).collect()
    }

    fn take_journals(&mut self) -> impl Iterator<Item = Written> {
        self.outboxes.values_mut().flat_map(Outbox::take_journal)
    }
}
