//! The rebalancer: one view of the cluster after another, and this instance's part of what follows.
//!
//! Each heartbeat brings a view of the cluster, in the same statement. That view is good enough to see that
//! there is nothing to do. Before anything is done, a fresh view is read. (By the heartbeat's view an
//! instance could take a partition for its own that it has released since.) Such a view is read when a beat's
//! view asks for it, when the delivery wing's polls say that the cluster has changed, again and again while
//! others hold what this instance is to own, and when no beat has come for an interval.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::{ClusterConfig, heartbeat::ViewSnapshot};
use crate::{
    instance::{ClusterView, Generation, InstanceId, InstanceState},
    ownership::Ownership,
    partition::{Partition, PartitionSet},
    rules::{
        assignment::{Moves, assign, moves},
        liveness::{Observations, Suspect},
    },
    store::{Store, StoreError},
    telemetry::{Observers, Signal},
};

/// Why a rebalancer came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// Another instance has declared this one dead, or owns what this one works on.
    Evicted,
    /// It was asked to drain, and all its partitions are released.
    Drained,
}

/// The share of the usual time between two views after which an instance that waits for others reads the next
/// view.
const AWAITING_SHARE: u32 = 10;
/// The share after which the next view may be read when the cluster is known to have changed.
const CHANGED_SHARE: u32 = 20;

/// The result of a view.
enum Ticked {
    /// This instance has lost its membership, or the ownership of partitions that it works on.
    Evicted,
    /// A person has told this instance to drain.
    Drained,
    /// It is to own partitions that others still hold.
    Awaiting,
    Settled,
}

/// The task that takes and gives away the partitions of one instance.
pub(crate) struct Rebalancer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) me: InstanceId,
    pub(crate) config: ClusterConfig,
    /// How long a view may be late before the windows start afresh.
    pub(crate) gap_limit: Duration,
    pub(crate) ownership: Ownership,
    pub(crate) observers: Observers,
    /// Turns true when this instance is to leave.
    pub(crate) draining: watch::Receiver<bool>,
    /// This wing tells here that a person has told the instance to drain.
    pub(crate) drained: watch::Sender<bool>,
    /// What the heartbeats bring.
    pub(crate) views: watch::Receiver<Option<ViewSnapshot>>,
}

impl Rebalancer {
    /// Takes part until evicted or drained.
    pub(crate) async fn run(mut self) -> Departure {
        let mut observations = Observations::default();
        let mut changes = self.ownership.changes();
        let interval = self.config.rebalance_interval;
        loop {
            let looked_at = Instant::now();
            changes.mark_unchanged();
            self.views.mark_unchanged();
            if *self.draining.borrow() {
                return self.leave().await;
            }
            let pause = match self.tick(&mut observations).await {
                Ok(Ticked::Evicted) => return Departure::Evicted,
                Ok(Ticked::Drained) => {
                    self.drained.send_replace(true);
                    return self.leave().await;
                }
                Ok(Ticked::Awaiting) => interval / AWAITING_SHARE,
                Ok(Ticked::Settled) => interval,
                Err(error) => {
                    self.report(&error);
                    interval
                }
            };
            let soonest = looked_at + interval / CHANGED_SHARE;
            self.wait_until(looked_at + pause, soonest, &mut observations, &mut changes).await;
        }
    }

    /// Waits for the next tick, releasing what has drained meanwhile. It comes sooner when the cluster
    /// has changed, but not before `soonest`, and later as long as beats say that there is nothing to do.
    async fn wait_until(
        &mut self,
        mut next: Instant,
        soonest: Instant,
        observations: &mut Observations,
        changes: &mut watch::Receiver<i64>,
    ) {
        let mut changed = false;
        loop {
            let ownership = self.ownership.clone();
            tokio::select! {
                () = tokio::time::sleep_until(next) => return,
                _ = self.draining.changed() => return,
                () = ownership.permit_returned() => self.release_drained().await,
                Ok(()) = changes.changed() => changed = true,
                Ok(()) = self.views.changed() => match self.is_at_rest(observations) {
                    true if !changed => next = next.max(Instant::now() + self.config.rebalance_interval),
                    true => {}
                    false => changed = true,
                },
            }
            if changed {
                next = next.min(soonest);
            }
        }
    }

    /// Whether there is nothing to do by the view that the last beat has brought.
    fn is_at_rest(&mut self, observations: &mut Observations) -> bool {
        let Some(ViewSnapshot { at, view }) = self.views.borrow_and_update().clone() else { return false };
        if self.state_in(&view) != Some(InstanceState::Active) {
            return false;
        }
        if !self.suspects(&view, at, observations).is_empty() {
            return false;
        }
        let own = Partition::all().filter(|partition| view.claims[partition.index()].owner == Some(self.me));
        let own: PartitionSet = own.collect();
        let known = |partition: Partition| {
            self.ownership.generation(partition) == Some(view.claims[partition.index()].generation)
        };
        let Moves { claim, release, awaited } = self.moves(&view);
        own == self.ownership.owned()
            && own.iter().all(known)
            && [claim, release, awaited].iter().all(PartitionSet::is_empty)
    }

    /// What a view says of this instance, if it is among the living.
    fn state_in(&self, view: &ClusterView) -> Option<InstanceState> {
        view.members.iter().find(|member| member.id == self.me).map(|member| member.state)
    }

    /// This instance's part of what is to be done.
    fn moves(&self, view: &ClusterView) -> Moves {
        let alive = |wanted: fn(InstanceState) -> bool| -> BTreeSet<InstanceId> {
            view.members.iter().filter(|member| wanted(member.state)).map(|member| member.id).collect()
        };
        let active = alive(|state| state == InstanceState::Active);
        let assignment = assign(&active, &view.claims);
        moves(self.me, &assignment, &alive(InstanceState::is_live), &view.claims)
    }

    /// Those who have been silent for too long at the time of a view.
    fn suspects(&self, view: &ClusterView, at: Duration, observations: &mut Observations) -> Vec<Suspect> {
        let stale = self.config.stale_instance_timeout;
        let (suspects, interrupted) = observations.observe(&view.members, at, stale, self.gap_limit);
        if interrupted {
            self.observers.emit(Signal::ObservationInterrupted);
        }
        suspects.into_iter().filter(|suspect| suspect.id != self.me).collect()
    }

    /// One view and what follows.
    async fn tick(&self, observations: &mut Observations) -> Result<Ticked, StoreError> {
        let mut view = self.store.view().await?;
        let Some(state) = self.state_in(&view) else { return Ok(Ticked::Evicted) };
        if self.has_lost_claims(&view) {
            return Ok(Ticked::Evicted);
        }
        if state == InstanceState::Draining {
            return Ok(Ticked::Drained);
        }
        // A claim whose answer was lost may have been written. Nobody else wants such a partition, so without
        // this nobody would work on it.
        let own = |partition: &Partition| view.claims[partition.index()].owner == Some(self.me);
        let claim = |partition: Partition| (partition, view.claims[partition.index()].generation);
        self.grant(&Partition::all().filter(own).map(claim).collect::<Vec<_>>());
        self.evict_silent(&mut view, observations).await?;
        let moves = self.moves(&view);
        self.carry_out(&moves, &view).await?;
        self.evict_overdue(&moves, &view, observations).await?;
        Ok(if moves.awaited.is_empty() { Ticked::Settled } else { Ticked::Awaiting })
    }

    /// Whether somebody else has taken, or the database has forgotten, what this instance works on: an
    /// operator has moved it, a backup was restored, a failover has lost the last claims. All claims were
    /// acknowledged before this view was asked for, so the view is right. The fence rows are the same for all
    /// partitions, so all of them are given up: then no late outcome of this instance can be written.
    fn has_lost_claims(&self, view: &ClusterView) -> bool {
        let is_other = |partition: &Partition| {
            let claim = view.claims[partition.index()];
            claim.owner != Some(self.me) || self.ownership.generation(*partition) != Some(claim.generation)
        };
        let lost: PartitionSet = self.ownership.held().iter().filter(is_other).collect();
        // No work goes on there: the partition was released, and only the answer was lost.
        let released = PartitionSet::from_iter(lost.iter().filter(|p| self.ownership.drained().contains(*p)));
        self.ownership.clear(released);
        let partitions = lost.without(released);
        if !partitions.is_empty() {
            self.observers.emit(Signal::ClaimsLost { partitions });
        }
        !partitions.is_empty()
    }

    async fn evict_silent(
        &self,
        view: &mut ClusterView,
        observations: &mut Observations,
    ) -> Result<(), StoreError> {
        for suspect in self.suspects(view, self.ownership.clock().now(), observations) {
            if self.store.evict(suspect.id, Some(suspect.beat)).await? {
                let silent_for = Some(suspect.silent_for);
                self.observers.emit(Signal::PeerEvicted { instance: suspect.id, silent_for });
            }
            // Evicted by us or by another, or alive after all: the next view tells. Its partitions
            // are claimed by compare-and-set, so a wrong guess costs nothing.
            view.members.retain(|member| member.id != suspect.id);
        }
        Ok(())
    }

    async fn carry_out(&self, moves: &Moves, view: &ClusterView) -> Result<(), StoreError> {
        if !moves.release.is_empty() {
            self.ownership.drain(moves.release);
        }
        self.release_drained().await;
        if moves.claim.is_empty() {
            return Ok(());
        }
        let wanted: Vec<(Partition, Generation)> = moves
            .claim
            .iter()
            .map(|partition| (partition, view.claims[partition.index()].generation))
            .collect();
        self.grant(&self.store.claim(self.me, &wanted).await?);
        Ok(())
    }

    fn grant(&self, owned: &[(Partition, Generation)]) {
        let partitions = self.ownership.grant(owned);
        if !partitions.is_empty() {
            self.observers.emit(Signal::PartitionsGranted { partitions });
        }
    }

    /// Evicts instances that beat, but have not released partitions that this instance waits for.
    async fn evict_overdue(
        &self,
        moves: &Moves,
        view: &ClusterView,
        observations: &mut Observations,
    ) -> Result<(), StoreError> {
        let mut holders: BTreeMap<InstanceId, PartitionSet> = BTreeMap::new();
        for partition in moves.awaited.iter() {
            if let Some(owner) = view.claims[partition.index()].owner {
                holders.entry(owner).or_default().insert(partition);
            }
        }
        let now = self.ownership.clock().now();
        for instance in observations.overdue(&holders, now, self.config.handover_timeout) {
            if self.store.evict(instance, None).await? {
                self.observers.emit(Signal::PeerEvicted { instance, silent_for: None });
            }
        }
        Ok(())
    }

    async fn release_drained(&self) {
        let drained = self.ownership.drained();
        if drained.is_empty() {
            return;
        }
        let claim = |partition| Some((partition, self.ownership.generation(partition)?));
        let claims: Vec<(Partition, Generation)> = drained.iter().filter_map(claim).collect();
        match self.store.release(self.me, &claims).await {
            Ok(_) => {
                self.ownership.clear(drained);
                self.observers.emit(Signal::PartitionsReleased { partitions: drained });
            }
            Err(error) => self.report(&error),
        }
    }

    /// Drains everything and releases each partition as it goes idle.
    async fn leave(&self) -> Departure {
        let pause = self.config.heartbeat_interval / 5;
        while let Err(error) = self.store.drain(self.me).await {
            self.report(&error);
            tokio::time::sleep(pause).await;
        }
        self.ownership.drain(self.ownership.held());
        loop {
            self.release_drained().await;
            if self.ownership.held().is_empty() {
                return Departure::Drained;
            }
            tokio::select! {
                () = self.ownership.permit_returned() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn report(&self, error: &StoreError) {
        self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{
        clock::Clock,
        database::Database,
        memory::{Memory, MemoryPool},
        store::{Completed, NewInstance, StoreSettings, Tables},
        telemetry::Observer,
    };

    /// What one member and the database have, and the claims that the member was told to be lost.
    struct Stage {
        rebalancer: Rebalancer,
        other: InstanceId,
        lost: Arc<Mutex<PartitionSet>>,
    }

    struct NotesLost(Arc<Mutex<PartitionSet>>);

    impl Observer for NotesLost {
        fn on(&self, signal: &Signal) {
            if let Signal::ClaimsLost { partitions } = signal {
                *self.0.lock().unwrap() = *partitions;
            }
        }
    }

    impl Stage {
        /// Two members, one of which has claimed its half.
        async fn new() -> Self {
            let (tables, completed, call_timeout) =
                (Tables::default(), Completed::Delete, Duration::from_secs(1));
            let settings = StoreSettings { tables, completed, call_timeout, async_settle: false };
            let store = Memory::open(&MemoryPool::new(), settings).unwrap();
            let (me, other) = (InstanceId::generate(), InstanceId::generate());
            for id in [me, other] {
                let (name, version) = (String::new(), String::new());
                store.join(&NewInstance { id, name, version, fence_rows: 1 }).await.unwrap();
            }
            let (config, lost) = (ClusterConfig::default(), Arc::default());
            let rebalancer = Rebalancer {
                store,
                me,
                gap_limit: config.gap_limit(),
                config,
                ownership: Ownership::new(Clock::pausable()),
                observers: Observers(Arc::new(vec![Arc::new(NotesLost(Arc::clone(&lost)))])),
                draining: watch::channel(false).1,
                drained: watch::Sender::new(false),
                views: watch::channel(None).1,
            };
            let stage = Self { rebalancer, other, lost };
            assert!(matches!(stage.tick().await, Ticked::Settled));
            assert_eq!(stage.rebalancer.ownership.held().len(), 128);
            stage
        }

        async fn tick(&self) -> Ticked {
            self.rebalancer.tick(&mut Observations::default()).await.unwrap()
        }

        /// The first partition that is owned, with its generation.
        fn first(&self) -> (Partition, Generation) {
            let ownership = &self.rebalancer.ownership;
            let first = ownership.held().iter().next().unwrap();
            (first, ownership.generation(first).unwrap())
        }

        /// The database forgets this claim.
        async fn forget(&self, claim: (Partition, Generation)) {
            let Rebalancer { store, me, .. } = &self.rebalancer;
            assert_eq!(store.release(*me, &[claim]).await.unwrap(), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_whose_claim_another_has_gives_everything_up() {
        let stage = Stage::new().await;
        assert!(matches!(stage.tick().await, Ticked::Settled));
        let (partition, generation) = stage.first();
        stage.forget((partition, generation)).await;
        let claimed = stage.rebalancer.store.claim(stage.other, &[(partition, generation)]).await.unwrap();
        assert_eq!(claimed, [(partition, Generation(generation.0 + 1))]);
        assert!(matches!(stage.tick().await, Ticked::Evicted));
        assert_eq!(*stage.lost.lock().unwrap(), PartitionSet::from_iter([partition]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_whose_claim_the_database_has_forgotten_gives_everything_up() {
        let stage = Stage::new().await;
        stage.forget(stage.first()).await;
        assert!(matches!(stage.tick().await, Ticked::Evicted));
    }

    /// The partition came back in a later generation: whoever had it meanwhile may have worked on it.
    #[tokio::test(start_paused = true)]
    async fn a_member_whose_claim_is_of_another_generation_gives_everything_up() {
        let stage = Stage::new().await;
        let claim = stage.first();
        stage.forget(claim).await;
        let Rebalancer { store, me, .. } = &stage.rebalancer;
        assert_eq!(store.claim(*me, &[claim]).await.unwrap().len(), 128);
        assert!(matches!(stage.tick().await, Ticked::Evicted));
    }

    /// Its release was written, and only the answer was lost.
    #[tokio::test(start_paused = true)]
    async fn a_partition_that_was_drained_may_be_gone() {
        let stage = Stage::new().await;
        let claim = stage.first();
        let ownership = &stage.rebalancer.ownership;
        ownership.drain(PartitionSet::from_iter([claim.0]));
        stage.forget(claim).await;
        assert!(matches!(stage.tick().await, Ticked::Settled));
        assert_eq!(ownership.generation(claim.0), Some(Generation(claim.1.0 + 1)), "it was free to claim");
        assert!(ownership.is_open(claim.0));
    }
}
