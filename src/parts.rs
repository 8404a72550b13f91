//! What an outbox consists of: the builder makes it, the outbox holds it, the runtime starts from it.

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
    /// The tables that the pool leads to, if the workers have another one: they must be the same.
    pub(crate) own: Option<Arc<dyn Store>>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) scheduler: Scheduler,
    pub(crate) wake: Wake,
    /// How to be told of the commits of other processes, if asked for.
    pub(crate) notifier: Option<Arc<dyn Notifier>>,
    pub(crate) announcer: Option<Arc<Announcer>>,
    pub(crate) owned: Owned,
    pub(crate) observers: Observers,
    /// Cancelled when the workers are to shut down.
    pub(crate) shutdown: CancellationToken,
}
