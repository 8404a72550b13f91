//! The runtime of claimed mode: starts a claimer, keeps house beside it, and stops it. There is no cluster: no
//! membership, no heartbeat, no partitions to share.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use crate::{
    clock::Clock,
    config::Config,
    database::Database,
    delivery::{Claimer, ClaimerSetup},
    handler::Registry,
    instance::{Generation, InstanceId},
    notifications::{Owned, listen},
    ownership::Ownership,
    partition::Partition,
    parts::Parts,
    patience::Patience,
    readiness::{StartError, prepare},
    rules::horizon::Server,
    running::{Controls, Finished, Running, ShutdownReport},
    schedule::Routes,
    store::{FenceRow, Notifier, PURGED_AT_ONCE, Store, StoreError},
    telemetry::{Observers, Signal},
    wake::Wake,
};

/// The time after which an unused connection of the workers is closed.
const UNUSED_FOR: Duration = Duration::from_secs(10);
/// The generation of all partitions: nobody else owns one.
const GENERATION: Generation = Generation(1);

/// Checks the schema, publishes the handlers, and returns with the workers running.
pub(crate) async fn start<DB: Database>(inner: &Arc<Parts<DB>>) -> Result<Running, StartError> {
    prepare(inner).await?;
    let (stop, stopped) = watch::channel(false);
    let (announce, instance) = watch::channel(InstanceId::generate());
    let worker = Worker {
        store: Arc::clone(&inner.store),
        registry: Arc::clone(&inner.registry),
        routes: Arc::clone(&inner.scheduler.routes),
        config: inner.config.clone(),
        wake: inner.wake.clone(),
        notifier: inner.notifier.clone(),
        owned: Arc::clone(&inner.owned),
        observers: inner.observers.clone(),
        stopped,
        announce,
    };
    let controls = Controls {
        token: inner.shutdown.clone(),
        stop,
        instance,
        owned: Arc::clone(&inner.owned),
        poll_interval: inner.config.delivery.poll_interval,
    };
    Ok(Running::spawn(worker.run(), controls, inner.observers.clone()))
}

struct Worker {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    routes: Arc<Routes>,
    config: Config,
    wake: Wake,
    notifier: Option<Arc<dyn Notifier>>,
    owned: Owned,
    observers: Observers,
    stopped: watch::Receiver<bool>,
    announce: watch::Sender<InstanceId>,
}

impl Worker {
    /// Runs one session after another. A session ends when another server answers, because what is known
    /// concerns the one before.
    async fn run(mut self) -> Finished {
        let report = loop {
            if let Some(report) = self.session().await {
                break report;
            }
            // What is known of the claims of the session before does not count any more.
            self.announce.send_replace(InstanceId::generate());
        };
        // The outbox may live on and schedule.
        self.store.close_idle(Duration::ZERO).await;
        if let Some(notifier) = &self.notifier {
            notifier.close_idle(Duration::ZERO).await;
        }
        Finished::Shutdown { report }
    }

    /// Returns the report of a shutdown, or `None` if another session is to follow.
    async fn session(&mut self) -> Option<ShutdownReport> {
        let Some(server) = self.find_server().await else {
            return Some(ShutdownReport { graceful: true, cancelled: 0 });
        };
        let (me, store) =
            (FenceRow::of_settler(*self.announce.borrow(), server), self.store.bound_to(server));
        let ownership = Ownership::new(if store.own_thread() { Clock::Boot } else { Clock::pausable() });
        let all: Vec<_> = Partition::all().map(|partition| (partition, GENERATION)).collect();
        ownership.grant(&all);
        let mut claimer = Claimer::new(ClaimerSetup {
            store: Arc::clone(&store),
            registry: Arc::clone(&self.registry),
            config: self.config.delivery.clone(),
            ownership: ownership.clone(),
            wake: self.wake.clone(),
            observers: self.observers.clone(),
            me,
            stopped: self.stopped.clone(),
        });
        self.owned.send_replace(Some(ownership.clone()));
        let limit = self.config.cluster.graceful_shutdown_timeout;
        let ended = tokio::select! {
            all_done = claimer.run() => all_done.then_some(ShutdownReport { graceful: true, cancelled: 0 }),
            () = store.server_changed() => {
                self.observers.emit(Signal::ServerChanged { instance: me.instance });
                None
            }
            () = overtime(self.stopped.clone(), limit) => Some(ShutdownReport { graceful: false, cancelled: 0 }),
            () = self.housekeeping(&*store) => None,
            () = self.listen_to_others(&ownership) => None,
        };
        self.owned.send_replace(None);
        let cancelled = claimer.held();
        // Dropping the claimer cancels its handlers. What they had comes again after the lease.
        drop(claimer);
        store.close_idle(Duration::ZERO).await;
        let report = ended
            .or_else(|| self.stopped.borrow().then_some(ShutdownReport { graceful: false, cancelled: 0 }))?;
        if report.graceful {
            return Some(report);
        }
        self.observers.emit(Signal::ShutdownForced { records: cancelled });
        Some(ShutdownReport { graceful: false, cancelled })
    }

    /// Asks which server answers, however long the database is unreachable. `None` if a stop was asked for.
    async fn find_server(&mut self) -> Option<Server> {
        let mut patience = Patience::default();
        while !*self.stopped.borrow() {
            match self.store.server().await {
                Ok(server) => {
                    self.store.close_idle(Duration::ZERO).await;
                    return Some(server);
                }
                Err(error) => self.report(&error),
            }
            // A shutdown does not wait for the next try.
            let _ = tokio::time::timeout(patience.next(), self.stopped.wait_for(|stop| *stop)).await;
        }
        None
    }

    /// Finds commits of other processes early. Never ends.
    async fn listen_to_others(&self, ownership: &Ownership) {
        match &self.notifier {
            Some(notifier) => {
                let listen_state = ownership.vitals().listen_state();
                listen(&**notifier, &self.wake, listen_state, &self.observers).await;
            }
            None => std::future::pending().await,
        }
    }

    /// Keeps the list of handlers fresh and purges old rows. Never ends.
    async fn housekeeping(&self, store: &dyn Store) {
        let retention = &self.config.retention;
        let mut purge_at = Instant::now() + retention.purge_interval;
        loop {
            tokio::time::sleep(self.config.schedule.route_refresh / 2).await;
            if let Err(error) = self.routes.refresh(store).await {
                self.report(&error);
            }
            store.close_idle(UNUSED_FOR).await;
            // The unbound store has the connections of the service's own calls.
            self.store.close_idle(UNUSED_FOR).await;
            if Instant::now() < purge_at {
                continue;
            }
            purge_at = Instant::now() + retention.purge_interval;
            match store.purge(retention.completed_for, retention.dedup_for).await {
                Ok(purged) if purged >= PURGED_AT_ONCE => purge_at = Instant::now(),
                Ok(_) => {}
                Err(error) => self.report(&error),
            }
        }
    }

    fn report(&self, error: &StoreError) {
        self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
    }
}

/// Returns when a shutdown has exceeded its time limit.
async fn overtime(mut stop: watch::Receiver<bool>, limit: Duration) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(limit).await;
}
