//! A whole store: all traits of the store in one object.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{AdminStore, ClaimStore, ClusterStore, DeadLetterStore, Notifier, RecordStore, SchemaStore};
use crate::rules::horizon::Server;

/// All traits of the store, and what concerns its connections.
#[async_trait]
#[doc(hidden)]
pub trait Store:
    RecordStore + ClusterStore + ClaimStore + AdminStore + DeadLetterStore + SchemaStore
{
    /// Whether the heartbeat may have a thread and a runtime of its own.
    fn own_thread(&self) -> bool;
    /// The same database over separate connections, for the runtime of the heartbeat.
    fn for_heartbeat(&self) -> Arc<dyn Store>;
    /// The same database over separate connections, as long as this server answers. If another server
    /// answers, calls fail.
    fn bound_to(&self, server: Server) -> Arc<dyn Store>;
    /// Returns when a server has answered that is not the one this store is bound to. A store that is bound
    /// to no server never returns. Cancel safe.
    async fn server_changed(&self) {
        std::future::pending().await
    }
    /// The statements by name, for `EXPLAIN`: as they are sent, with the tokens of lists and parameters
    /// unfilled.
    fn statements(&self) -> Vec<(&'static str, Arc<str>)> {
        Vec::new()
    }
    /// Closes connections that were not used for this long. They are opened again when needed.
    async fn close_idle(&self, _: Duration) {}
    /// The notifier that tells other processes of commits, over separate connections. `None` if the database
    /// has no notifications.
    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        None
    }
}
