//! A whole store: all of its traits in one object.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{AdminStore, ClusterStore, DeadLetterStore, Notifier, RecordStore, SchemaStore};
use crate::rules::watermark::Server;

/// All of them.
#[async_trait]
#[doc(hidden)]
pub trait Store: RecordStore + ClusterStore + AdminStore + DeadLetterStore + SchemaStore {
    /// Whether the heartbeat may have a thread and a runtime of its own.
    fn own_thread(&self) -> bool;
    /// The same database over connections of its own, for the heartbeat's runtime.
    fn for_heartbeat(&self) -> Arc<dyn Store>;
    /// The same database over connections of its own, for as long as this server answers. When another one does,
    /// calls fail.
    fn bound_to(&self, server: Server) -> Arc<dyn Store>;
    /// Returns when another server has answered than the one that this store is bound to; for a store that is
    /// bound to none, never. Cancel safe.
    async fn server_changed(&self) {
        std::future::pending().await
    }
    /// The statements by name, as they are sent but for lists and parameters; for those who explain them.
    fn statements(&self) -> Vec<(&'static str, Arc<str>)> {
        Vec::new()
    }
    /// Closes connections that have not been used for this long; they are opened again when needed.
    async fn close_idle(&self, _: Duration) {}
    /// The notifier that tells other processes of commits, over connections of its own. `None` if the
    /// database has no notifications.
    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        None
    }
}
