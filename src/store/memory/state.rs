//! The state of a pool: the outboxes behind one mutex.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tokio::time::Instant;

use super::{faults::Faults, journal::Written, locks::Locks, outbox::Outbox};
use crate::{record::RecordId, store::Tables};

/// The state shared by all clones of a pool.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) data: Mutex<Data>,
    pub(super) locks: Arc<Locks>,
    pub(super) faults: Faults,
    /// The same moment on both clocks. The wall clock of the database advances with tokio's clock. Never
    /// changes.
    pub(super) started: (Instant, SystemTime),
}

/// The committed state.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    /// One outbox per prefix and schema.
    pub(super) outboxes: BTreeMap<Tables, Outbox>,
    pub(super) effects: Vec<String>,
    /// The number of the server. Moved on by a failover, after which ids and numbers have another history.
    pub(super) server: i64,
    /// Whether writes are kept for a client with conditions. Set when such a client is made.
    pub(super) journaled: bool,
    /// The ids that are used up between two ids.
    pub(super) ids_between: RecordId,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            data: Mutex::default(),
            locks: Arc::default(),
            faults: Faults::default(),
            started: (Instant::now(), SystemTime::now()),
        }
    }

    pub(super) fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts a time of the wall clock to tokio's clock.
    pub(super) fn instant_of(&self, time: SystemTime) -> Option<Instant> {
        let (instant, wall) = self.started;
        match time.duration_since(wall) {
            Ok(after) => instant.checked_add(after),
            Err(before) => instant.checked_sub(before.duration()),
        }
    }
}

impl Data {
    pub(super) fn outbox(&mut self, tables: &Tables) -> &mut Outbox {
        let (server, journaled, between) = (self.server, self.journaled, self.ids_between);
        self.outboxes.entry(tables.clone()).or_insert_with(|| {
            let mut new = Outbox::new(server, journaled);
            new.use_up_between(between);
            new
        })
    }

    /// Draws a number in each outbox for a transaction that begins.
    pub(super) fn begin_everywhere(&mut self) -> Vec<(Tables, i64)> {
        self.outboxes.iter_mut().map(|(tables, outbox)| (tables.clone(), outbox.begin())).collect()
    }

    pub(super) fn take_journals(&mut self) -> impl Iterator<Item = Written> {
        self.outboxes.values_mut().flat_map(Outbox::take_journal)
    }
}
