//! The parts of an outbox: the builder makes them, the outbox holds them, the runtime starts from them.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    database::Database,
    handler::Registry,
    notifications::{Announcer, Owned},
    schedule::Scheduler,
    store::{Notifier, Store},
    telemetry::Observers,
    wake::Wake,
};

pub(crate) struct Parts<DB: Database> {
    pub(crate) pool: DB::Pool,
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
    /// The store over the outbox's pool, if the workers have another pool. Both must lead to the same tables.
    pub(crate) own: Option<Arc<dyn Store>>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) scheduler: Scheduler,
    pub(crate) wake: Wake,
    /// The notifier for commits of other processes, if notifications are enabled.
    pub(crate) notifier: Option<Arc<dyn Notifier>>,
    pub(crate) announcer: Option<Arc<Announcer>>,
    pub(crate) owned: Owned,
    pub(crate) observers: Observers,
    /// Cancelled by the service when the workers are to shut down.
    pub(crate) shutdown: CancellationToken,
}
