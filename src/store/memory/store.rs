//! The store of the workers, over the tables of a pool.

use std::sync::Arc;

use tokio::time::Instant;

use super::{client::Client, outbox::Outbox};
use crate::store::{Completed, Store, StoreError, StoreSettings, Tables};

/// A store over the tables of a pool.
#[derive(Clone, Debug)]
pub(super) struct MemoryStore {
    pub(super) client: Client,
    pub(super) tables: Tables,
    pub(super) completed: Completed,
}

impl MemoryStore {
    pub(super) fn new(client: Client, settings: StoreSettings) -> Self {
        Self { client, tables: settings.tables, completed: settings.completed }
    }

    /// One call: all of its work in one critical section, with the faults that a test asked for.
    pub(super) async fn call<T>(
        &self,
        name: &'static str,
        work: impl FnOnce(&mut Outbox, Instant) -> T + Send,
    ) -> Result<T, StoreError> {
        self.client.call(name, |data, now| work(data.outbox(&self.tables), now)).await
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
