//! The store in memory: every table of an outbox behind one mutex.
//!
//! A call of the store is one critical section, so statements and transactions of the store are
//! atomic and serial by construction: an evictor that comes during a settle waits for the mutex. What
//! a user's transaction writes is kept aside until its commit ([`pool`]), but its record ids are
//! drawn at once, as a sequence does: a later id can become visible first.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tokio::time::Instant;

use self::{faults::Faults, locks::Locks, outbox::Outbox};
use super::{Completed, Store, StoreError, StoreSettings, Tables};

mod admin;
mod cancel;
mod cluster;
mod database;
mod faults;
mod locks;
mod outbox;
mod pool;
mod records;
mod rows;
mod settle;
mod transactional;

pub use faults::Fault;
pub use pool::{Memory, MemoryConnection, MemoryPool, MemoryTransaction};

/// What all clones of a pool share.
#[derive(Debug)]
struct Shared {
    data: Mutex<Data>,
    locks: Arc<Locks>,
    faults: Faults,
    /// The same moment on both clocks: the database's wall clock moves as tokio's clock does.
    started: (Instant, SystemTime),
}

/// Everything that is committed.
#[derive(Debug, Default)]
struct Data {
    /// One outbox per prefix and schema.
    outboxes: HashMap<Tables, Outbox>,
    effects: Vec<String>,
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

    /// A time of the wall clock on tokio's clock.
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
        self.outboxes.entry(tables.clone()).or_default()
    }
}

/// A store over the tables of a pool.
#[derive(Clone, Debug)]
struct MemoryStore {
    shared: Arc<Shared>,
    tables: Tables,
    completed: Completed,
}

impl MemoryStore {
    fn new(shared: Arc<Shared>, settings: StoreSettings) -> Self {
        Self { shared, tables: settings.tables, completed: settings.completed }
    }

    /// One call: all of its work in one critical section, with the faults that a test asked for.
    async fn call<T>(
        &self,
        name: &'static str,
        work: impl FnOnce(&mut Outbox, Instant) -> T + Send,
    ) -> Result<T, StoreError> {
        // A call of a database lets other tasks run meanwhile. So must this call, or a poll loop would never
        // yield.
        tokio::task::yield_now().await;
        self.shared.faults.around(name, || work(self.shared.data().outbox(&self.tables), Instant::now()))
    }
}

impl Store for MemoryStore {
    fn own_thread(&self) -> bool {
        // Paused time belongs to one runtime.
        false
    }

    fn for_heartbeat(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }
}
