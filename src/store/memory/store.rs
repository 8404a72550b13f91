//! The store of the workers, over the tables of a pool.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{client::Client, outbox::Outbox};
use crate::{
    rules::horizon::Server,
    store::{Completed, ErrorClass, HomeServer, OTHER_SERVER, Store, StoreError, StoreSettings, Tables},
};

/// A store over the tables of a pool.
#[derive(Clone, Debug)]
pub(super) struct MemoryStore {
    pub(super) client: Client,
    pub(super) tables: Tables,
    pub(super) completed: Completed,
    /// The server that the store is bound to, if any. Never changes.
    home: Option<HomeServer>,
}

impl MemoryStore {
    pub(super) fn new(client: Client, settings: StoreSettings) -> Self {
        Self { client, tables: settings.tables, completed: settings.completed, home: None }
    }

    /// One call: its work in one critical section, with the faults that a test asked for.
    pub(super) async fn call<T>(
        &self,
        name: &'static str,
        work: impl FnOnce(&mut Outbox, Instant) -> T + Send,
    ) -> Result<T, StoreError> {
        let done = self.client.call(name, |data, now| {
            let outbox = data.outbox(&self.tables);
            let is_home = self.home.as_ref().is_none_or(|home| home.is(outbox.server()));
            is_home.then(|| work(outbox, now))
        });
        done.await?.ok_or_else(|| StoreError::new(name, ErrorClass::Reconnect, OTHER_SERVER))
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn own_thread(&self) -> bool {
        // Paused time belongs to one runtime, so the heartbeat has no second one.
        false
    }

    fn for_heartbeat(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    fn bound_to(&self, server: Server) -> Arc<dyn Store> {
        Arc::new(Self { home: Some(HomeServer::new(server)), ..self.clone() })
    }

    async fn server_changed(&self) {
        match &self.home {
            Some(home) => home.changed().await,
            None => std::future::pending().await,
        }
    }
}
