//! The runtime: starts both wings, connects them, and stops them in order.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use crate::{
    cluster::{Departure, Heartbeat, Pulse, Rebalancer},
    database::Database,
    delivery::{Dispatcher, Ended, Setup},
    instance::{InstanceId, default_name},
    membership::Membership,
    ownership::Ownership,
    partition::Partition,
    parts::{Parts, WorkerParts},
    patience::Patience,
    readiness::{StartError, prepare},
    running::{Finished, Running, ShutdownReport},
    store::{NewInstance, SPARE_ROWS, SchemaError, Store},
    telemetry::Signal,
    wake::Wake,
};

/// Joins, and returns with the workers running.
pub(crate) async fn start<DB: Database>(inner: &Arc<Parts<DB>>) -> Result<Running, StartError> {
    prepare(inner).await?;
    let (joined, first) = oneshot::channel();
    let (parts, controls) = inner.for_workers();
    let worker = Worker { parts, stop: controls.stop.clone(), drained: watch::Sender::new(false) };
    // Spawned before the wait: a caller that stops waiting drops `running`, and with it the workers.
    let running = Running::spawn(worker.run(joined), controls, inner.observers.clone());
    match first.await {
        Ok(Err(error)) => {
            running.shutdown().await;
            Err(error)
        }
        Ok(Ok(())) | Err(_) => Ok(running),
    }
}

/// Sends the result of the first join to `start`.
type Joined = oneshot::Sender<Result<(), StartError>>;

struct Worker {
    parts: WorkerParts,
    /// Sets `stopped` of the parts to true.
    stop: watch::Sender<bool>,
    /// Turns true when a person has told this instance to drain. Never reset, because a drained instance does
    /// not join again.
    drained: watch::Sender<bool>,
}

/// How a session ended.
enum Session {
    Evicted,
    Left(ShutdownReport),
    NoThread(String),
}

impl Worker {
    /// Runs one session after another: an evicted instance joins again with a new id.
    async fn run(mut self, joined: Joined) -> Finished {
        let mut joined = Some(joined);
        let reason = loop {
            let report = match self.session(&mut joined).await {
                Session::Left(report) => report,
                Session::NoThread(error) => break Finished::NoThread { error },
                Session::Evicted if *self.parts.stopped.borrow() => {
                    ShutdownReport { graceful: false, cancelled: 0 }
                }
                Session::Evicted => continue,
            };
            let drained = *self.drained.borrow();
            break if drained { Finished::Drained { report } } else { Finished::Shutdown { report } };
        };
        self.parts.close_all().await;
        reason
    }

    async fn session(&mut self, joined: &mut Option<Joined>) -> Session {
        let Some(member) = self.join(joined).await else {
            return Session::Left(ShutdownReport { graceful: true, cancelled: 0 });
        };
        let Membership { me, store, ownership, .. } = &member;
        let me = *me;
        let _ = self.parts.announce.send(me);
        let (pulse, evicted) = (Pulse::default(), Wake::default());
        let started = Heartbeat::start(
            store,
            me,
            &self.parts.config.cluster,
            ownership,
            &self.parts.observers,
            &pulse,
            &evicted,
        );
        let heartbeat = match started {
            Ok(heartbeat) => heartbeat,
            Err(error) => {
                let told = error.to_string();
                let Some(joined) = joined.take() else { return Session::NoThread(told) };
                let _ = joined.send(Err(error.into()));
                return Session::Left(ShutdownReport { graceful: false, cancelled: 0 });
            }
        };
        self.parts.observers.emit(Signal::Joined { instance: me });
        // Observers know the id before the first call of a handler.
        self.parts.observers.flush().await;
        if let Some(joined) = joined.take() {
            let _ = joined.send(Ok(()));
        }
        self.parts.owned.send_replace(Some(ownership.clone()));
        let session = self.work(&member, &heartbeat, pulse, &evicted).await;
        self.parts.owned.send_replace(None);
        if matches!(session, Session::Evicted) {
            ownership.lose();
            self.parts.observers.emit(Signal::Evicted { instance: me });
        }
        // The instance leaves after an eviction, too. The eviction may be its own conclusion (a crash of the
        // database has lost its last settles), and then no other instance would free its partitions soon.
        self.leave(me).await;
        store.close_idle(Duration::ZERO).await;
        session
    }

    /// Runs both wings until one of them ends. Dropping the dispatcher cancels its handlers.
    async fn work(
        &mut self,
        member: &Membership,
        heartbeat: &Heartbeat,
        pulse: Pulse,
        evicted: &Wake,
    ) -> Session {
        let Membership { me, store, ownership, .. } = member;
        let vitals = ownership.vitals();
        let dispatcher = Dispatcher::new(Setup {
            store: Arc::clone(store),
            registry: Arc::clone(&self.parts.registry),
            config: self.parts.config.delivery.clone(),
            ownership: ownership.clone(),
            wake: self.parts.wake.clone(),
            listen_state: vitals.listen_state().clone(),
            observers: self.parts.observers.clone(),
            fence: member.fence(),
            longest_hold: self
                .parts
                .config
                .cluster
                .handover_timeout
                .saturating_sub(self.parts.config.database.call_timeout),
        });
        let rebalancer = Rebalancer {
            store: Arc::clone(store),
            me: *me,
            config: self.parts.config.cluster.clone(),
            gap_limit: self.parts.config.cluster.gap_limit(),
            ownership: ownership.clone(),
            observers: self.parts.observers.clone(),
            draining: self.parts.stopped.clone(),
            drained: self.drained.clone(),
            views: heartbeat.views(),
        };
        // The permits are counted before the wings are dropped, which drops the permits.
        let in_flight = async {
            self.parts.overtime().await;
            ownership.permits_out()
        };
        tokio::select! {
            ended = dispatcher.run() => match ended { Ended::Evicted | Ended::Broken => Session::Evicted },
            departure = rebalancer.run() => match departure {
                Departure::Evicted => Session::Evicted,
                Departure::Drained => Session::Left(ShutdownReport { graceful: true, cancelled: 0 }),
            },
            () = evicted.nudged() => Session::Evicted,
            () = store.server_changed() => {
                self.parts.observers.emit(Signal::ServerChanged { instance: *me });
                Session::Evicted
            }
            cancelled = in_flight => {
                self.parts.observers.emit(Signal::ShutdownForced { records: cancelled });
                Session::Left(ShutdownReport { graceful: false, cancelled })
            }
            () = pulse.keep(self.parts.config.cluster.heartbeat_interval) => Session::Evicted,
            () = self.housekeeping(&**store, ownership) => Session::Evicted,
            () = self.parts.listen_to_others(vitals.listen_state()) => Session::Evicted,
            () = heartbeat.report_unowned(vitals) => Session::Evicted,
            () = self.stop_when_drained() => Session::Evicted,
        }
    }

    /// Stops a drained instance as a shutdown does, with the same time limit. Never ends.
    async fn stop_when_drained(&self) {
        if self.drained.subscribe().wait_for(|drained| *drained).await.is_ok() {
            self.stop.send_replace(true);
        }
        std::future::pending().await
    }

    /// Joins, however long the database is unreachable. Returns `None` if a stop was asked for, or if the
    /// database refuses while `start` waits. After `start` has returned, the join is tried again after a
    /// refusal, too, because a person may fix the cause.
    async fn join(&mut self, joined: &mut Option<Joined>) -> Option<Membership> {
        let mut instance = NewInstance {
            id: InstanceId::generate(),
            name: self.parts.config.cluster.instance_name.clone().unwrap_or_else(default_name),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            fence_rows: 1 + self.parts.config.delivery.transactional_concurrency as u32 + SPARE_ROWS,
        };
        if *self.parts.stopped.borrow() {
            return None;
        }
        let (mut patience, mut tried) = (Patience::default(), None);
        loop {
            let error = match Membership::begin(&*self.parts.store, &mut instance, &mut tried).await {
                Ok(member) => return Some(member),
                Err(error) => error,
            };
            self.parts.report(&error);
            if *self.parts.stopped.borrow() {
                return None;
            }
            if !error.class.may_pass()
                && let Some(joined) = joined.take()
            {
                let _ = joined.send(Err(SchemaError::from(error).into()));
                return None;
            }
            // A shutdown does not wait for the next try.
            if tokio::time::timeout(patience.next(), self.parts.stopped.wait_for(|stop| *stop)).await.is_ok()
            {
                return None;
            }
        }
    }

    /// Leaves the cluster, with tries for the time of one call: the connection may be broken although the
    /// database is back. If the instance does not leave, the others wait for the stale timeout.
    async fn leave(&self, me: InstanceId) {
        let until = Instant::now() + self.parts.config.database.call_timeout;
        let mut patience = Patience::default();
        while let Err(error) = self.parts.store.leave(me).await {
            self.parts.report(&error);
            let pause = patience.next();
            if Instant::now() + pause > until {
                return;
            }
            tokio::time::sleep(pause).await;
        }
        self.parts.observers.emit(Signal::Left { instance: me });
    }

    /// Keeps the list of handlers fresh and purges old rows. Never ends.
    async fn housekeeping(&self, store: &dyn Store, ownership: &Ownership) {
        let mut purge_at = Instant::now() + self.parts.config.retention.purge_interval;
        let mut changes = ownership.changes();
        let mut changed = false;
        loop {
            let (since, at) = (ownership.clock().now(), Instant::now());
            tokio::select! {
                () = tokio::time::sleep(self.parts.config.schedule.route_refresh / 2) => {}
                Ok(()) = changes.changed() => changed = true,
            };
            // Polls show whether the list has changed. If there were no polls, the list is read.
            match !changed && ownership.has_polled_since(since) {
                true => self.parts.routes.confirm(at),
                false => match self.parts.routes.refresh(store).await {
                    Ok(()) => changed = false,
                    Err(error) => self.parts.report(&error),
                },
            }
            self.parts.close_unused(store).await;
            // One instance purges for all: the owner of partition 0.
            let mine = Partition::new(0).is_some_and(|first| ownership.is_open(first));
            if Instant::now() < purge_at || !mine || !ownership.lease_holds() {
                continue;
            }
            purge_at = self.parts.purge(store).await;
            if let Err(error) = store.purge_instances(self.parts.config.cluster.purge_instances_after).await {
                self.parts.report(&error);
            }
        }
    }
}
