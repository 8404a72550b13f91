//! The parts of an outbox: the builder makes them, the outbox holds them, the runtime starts from them.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::watch,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    commit_wake::CommitWake,
    config::Config,
    database::Database,
    handler::Registry,
    instance::InstanceId,
    notifications::{Announcer, Owned, listen},
    running::Controls,
    schedule::{Routes, Scheduler},
    store::{Notifier, PURGED_AT_ONCE, Store, StoreError},
    telemetry::{Observers, Signal},
    vitals::ListenState,
};

pub(crate) struct Parts<DB: Database> {
    pub(crate) pool: DB::Pool,
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
    /// The store over the outbox's pool, if the workers have another pool. Both must lead to the same tables.
    pub(crate) own: Option<Arc<dyn Store>>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) scheduler: Scheduler<DB>,
    pub(crate) wake: CommitWake,
    /// The notifier for commits of other processes, if notifications are enabled.
    pub(crate) notifier: Option<Arc<dyn Notifier>>,
    pub(crate) announcer: Option<Arc<Announcer>>,
    pub(crate) owned: Owned,
    pub(crate) observers: Observers,
    /// Cancelled by the service when the workers are to shut down.
    pub(crate) shutdown: CancellationToken,
}

/// The time after which an unused connection of the workers is closed.
const UNUSED_FOR: Duration = Duration::from_secs(10);

/// What the workers of both modes work with.
pub(crate) struct WorkerParts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) config: Config,
    pub(crate) wake: CommitWake,
    pub(crate) notifier: Option<Arc<dyn Notifier>>,
    pub(crate) owned: Owned,
    pub(crate) observers: Observers,
    /// Turns true when the workers are to shut down.
    pub(crate) stopped: watch::Receiver<bool>,
    /// Takes the id of the instance, whenever it has another one.
    pub(crate) announce: watch::Sender<InstanceId>,
}

impl<DB: Database> Parts<DB> {
    /// The parts of workers, and what controls the workers.
    pub(crate) fn for_workers(&self) -> (WorkerParts, Controls) {
        // What runs in paused time, which only a runtime of one thread has, is repeatable without threads only.
        if self.store.own_thread() || Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
            self.observers.separate();
        }
        let (stop, stopped) = watch::channel(false);
        let (announce, instance) = watch::channel(InstanceId::generate());
        let parts = WorkerParts {
            store: Arc::clone(&self.store),
            registry: Arc::clone(&self.registry),
            routes: Arc::clone(&self.scheduler.routes),
            config: self.config.clone(),
            wake: self.wake.clone(),
            notifier: self.notifier.clone(),
            owned: Arc::clone(&self.owned),
            observers: self.observers.clone(),
            stopped,
            announce,
        };
        let controls = Controls {
            token: self.shutdown.clone(),
            stop,
            instance,
            owned: Arc::clone(&self.owned),
            wake: self.wake.clone(),
            poll_interval: self.config.delivery.poll_interval,
        };
        (parts, controls)
    }
}

impl WorkerParts {
    /// Fetches when another process notifies of a commit. Never ends.
    pub(crate) async fn listen_to_others(&self, listen_state: &ListenState) {
        match &self.notifier {
            Some(notifier) => listen(&**notifier, &self.wake, listen_state, &self.observers).await,
            None => std::future::pending().await,
        }
    }

    /// Returns when a shutdown has exceeded its time limit.
    pub(crate) async fn overtime(&self) {
        if self.stopped.clone().wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.config.cluster.graceful_shutdown_timeout).await;
    }

    /// Closes the connections of a session that were not used for long, and those of the service's own calls.
    pub(crate) async fn close_unused(&self, of_session: &dyn Store) {
        of_session.close_idle(UNUSED_FOR).await;
        self.store.close_idle(UNUSED_FOR).await;
    }

    /// Closes all connections. The outbox may live on and schedule.
    pub(crate) async fn close_all(&self) {
        self.store.close_idle(Duration::ZERO).await;
        if let Some(notifier) = &self.notifier {
            notifier.close_idle(Duration::ZERO).await;
        }
    }

    /// Purges old rows. Returns the time of the next purge.
    pub(crate) async fn purge(&self, store: &dyn Store) -> Instant {
        let (began, retention) = (Instant::now(), &self.config.retention);
        match store.purge(retention.completed_for, retention.dedup_for).await {
            Ok(purged) if purged >= PURGED_AT_ONCE => return began,
            Ok(_) => {}
            Err(error) => self.report(&error),
        }
        began + retention.purge_interval
    }

    pub(crate) fn report(&self, error: &StoreError) {
        self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
    }
}
