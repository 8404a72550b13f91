//! The runtime of claimed mode: starts a claimer and the purges, and stops them. There is no cluster: no
//! membership, no heartbeat, no partitions to share.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    clock::Clock,
    database::Database,
    delivery::{Claimer, ClaimerSetup},
    instance::{Generation, InstanceId},
    ownership::Ownership,
    partition::Partition,
    parts::{Parts, WorkerParts},
    patience::Patience,
    readiness::{StartError, prepare},
    rules::horizon::Server,
    running::{Finished, Running, ShutdownReport},
    store::{FenceRow, Store},
    telemetry::Signal,
};

/// The generation of all partitions: no other instance owns one.
const GENERATION: Generation = Generation(1);

/// Checks the schema, publishes the handlers, and returns with the workers running.
pub(crate) async fn start<DB: Database>(inner: &Arc<Parts<DB>>) -> Result<Running, StartError> {
    prepare(inner).await?;
    let (parts, controls) = inner.for_workers();
    Ok(Running::spawn(Worker(parts).run(), controls, inner.observers.clone()))
}

struct Worker(WorkerParts);

impl Worker {
    /// Runs one session after another. A session ends when another server answers, because all that
    /// this process knows is of the server before.
    async fn run(mut self) -> Finished {
        let report = loop {
            if let Some(report) = self.session().await {
                break report;
            }
            // The claims of the session before do not count any more.
            self.0.announce.send_replace(InstanceId::generate());
        };
        self.0.close_all().await;
        Finished::Shutdown { report }
    }

    /// Returns the report of a shutdown, or `None` if another session is to follow.
    async fn session(&mut self) -> Option<ShutdownReport> {
        let Some(server) = self.find_server().await else {
            return Some(ShutdownReport { graceful: true, cancelled: 0 });
        };
        let (me, store) =
            (FenceRow::of_settler(*self.0.announce.borrow(), server), self.0.store.bound_to(server));
        let ownership = Ownership::new(if store.own_thread() { Clock::Boot } else { Clock::pausable() });
        let all: Vec<_> = Partition::all().map(|partition| (partition, GENERATION)).collect();
        ownership.grant(&all);
        let mut claimer = Claimer::new(ClaimerSetup {
            store: Arc::clone(&store),
            registry: Arc::clone(&self.0.registry),
            config: self.0.config.delivery.clone(),
            ownership: ownership.clone(),
            wake: self.0.wake.clone(),
            observers: self.0.observers.clone(),
            me,
            stopped: self.0.stopped.clone(),
        });
        self.0.owned.send_replace(Some(ownership.clone()));
        let ended = tokio::select! {
            all_done = claimer.run() => all_done.then_some(ShutdownReport { graceful: true, cancelled: 0 }),
            () = store.server_changed() => {
                self.0.observers.emit(Signal::ServerChanged { instance: me.instance });
                None
            }
            () = self.0.overtime() => Some(ShutdownReport { graceful: false, cancelled: 0 }),
            () = self.housekeeping(&*store) => None,
            () = self.0.listen_to_others(ownership.vitals().listen_state()) => None,
        };
        self.0.owned.send_replace(None);
        let cancelled = claimer.held();
        // Dropping the claimer cancels its handlers. Their records come again after the lease.
        drop(claimer);
        store.close_idle(Duration::ZERO).await;
        let report = ended.or_else(|| {
            self.0.stopped.borrow().then_some(ShutdownReport { graceful: false, cancelled: 0 })
        })?;
        if report.graceful {
            return Some(report);
        }
        self.0.observers.emit(Signal::ShutdownForced { records: cancelled });
        Some(ShutdownReport { graceful: false, cancelled })
    }

    /// Asks which server answers, and tries until the database is reachable. `None` if a stop was asked for.
    async fn find_server(&mut self) -> Option<Server> {
        let mut patience = Patience::default();
        while !*self.0.stopped.borrow() {
            match self.0.store.server().await {
                Ok(server) => {
                    self.0.store.close_idle(Duration::ZERO).await;
                    return Some(server);
                }
                Err(error) => self.0.report(&error),
            }
            // A shutdown does not wait for the next try.
            let _ = tokio::time::timeout(patience.next(), self.0.stopped.wait_for(|stop| *stop)).await;
        }
        None
    }

    /// Keeps the list of handlers fresh and purges old rows. Never ends.
    async fn housekeeping(&self, store: &dyn Store) {
        let config = &self.0.config;
        let mut purge_at = Instant::now() + config.retention.purge_interval;
        loop {
            tokio::time::sleep(config.schedule.route_refresh / 2).await;
            if let Err(error) = self.0.routes.refresh(store).await {
                self.0.report(&error);
            }
            self.0.close_unused(store).await;
            if Instant::now() >= purge_at {
                purge_at = self.0.purge(store).await;
            }
        }
    }
}
