//! The rebalancer: reads views of the cluster and carries out this instance's part of each assignment.
//!
//! Each heartbeat brings a view of the cluster in the same statement. That view suffices to see that there is
//! nothing to do. Before a change, a fresh view is read. (The heartbeat's view may be older than a release of
//! this instance: the instance would take a released partition for its own.) A fresh view is read when a
//! beat's view shows work, when the polls of the delivery wing say that the cluster has changed, repeatedly
//! while others hold partitions assigned to this instance, and when no beat has come for an interval.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
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

/// Why a rebalancer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// Another instance has evicted this one, or owns partitions that this one works on.
    Evicted,
    /// The instance was told to drain, and all its partitions are released.
    Drained,
}

/// An instance that waits for others reads the next view after the interval divided by this number.
const AWAITING_SHARE: u32 = 10;
/// If the cluster has changed, the next view may be read after the interval divided by this number.
const CHANGED_SHARE: u32 = 20;

/// The result of a view.
enum Ticked {
    /// This instance has lost its membership, or the ownership of partitions that it works on.
    Evicted,
    /// A person has told this instance to drain.
    Drained,
    /// Other instances still hold partitions that are assigned to this one.
    Awaiting,
    Settled,
}

/// The task that claims and releases the partitions of one instance.
pub(crate) struct Rebalancer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) me: InstanceId,
    pub(crate) config: ClusterConfig,
    /// The longest time between two views before the windows of silence start again.
    pub(crate) gap_limit: Duration,
    pub(crate) ownership: Ownership,
    pub(crate) observers: Observers,
    /// Turns true when this instance is told to leave. Set by the runtime.
    pub(crate) draining: watch::Receiver<bool>,
    /// Set to true by this task when a person has told the instance to drain.
    pub(crate) drained: watch::Sender<bool>,
    /// The views that come with the heartbeats.
    pub(crate) views: watch::Receiver<Option<ViewSnapshot>>,
}

impl Rebalancer {
    /// Claims and releases partitions until this instance is evicted or drained.
    pub(crate) async fn run(mut self) -> Departure {
        let mut observations = Observations::default();
        let mut changes = self.ownership.changes();
        let interval = self.config.rebalance_interval;
        loop {
            let began_at = Instant::now();
            changes.mark_unchanged();
            self.views.mark_unchanged();
            if *self.draining.borrow() {
                return self.leave().await;
            }
            let pause = match self.heeding(self.tick(&mut observations)).await {
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
            let soonest = began_at + interval / CHANGED_SHARE;
            self.wait_until(began_at + pause, soonest, &mut observations, &mut changes).await;
        }
    }

    /// Waits for the next tick and releases drained partitions meanwhile. If the cluster has changed, the
    /// tick comes sooner, but not before `soonest`. As long as beats show that there is nothing to do, it
    /// comes later.
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
                () = ownership.permit_returned() => self.heeding(self.release_drained()).await,
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

    /// Whether the view of the last beat shows that there is nothing to do.
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

    /// The state of this instance in a view, or `None` if it is not live.
    fn state_in(&self, view: &ClusterView) -> Option<InstanceState> {
        view.members.iter().find(|member| member.id == self.me).map(|member| member.state)
    }

    /// The moves of this instance by a view.
    fn moves(&self, view: &ClusterView) -> Moves {
        let alive = |wanted: fn(InstanceState) -> bool| -> BTreeSet<InstanceId> {
            view.members.iter().filter(|member| wanted(member.state)).map(|member| member.id).collect()
        };
        let active = alive(|state| state == InstanceState::Active);
        let assignment = assign(&active, &view.claims);
        moves(self.me, &assignment, &alive(InstanceState::is_live), &view.claims)
    }

    /// The other instances that have been silent for too long at the time of a view.
    fn suspects(&self, view: &ClusterView, at: Duration, observations: &mut Observations) -> Vec<Suspect> {
        let stale = self.config.stale_instance_timeout;
        let (suspects, interrupted) = observations.observe(&view.members, at, stale, self.gap_limit);
        if interrupted {
            self.observers.emit(Signal::ObservationInterrupted);
        }
        suspects.into_iter().filter(|suspect| suspect.id != self.me).collect()
    }

    /// Waits for calls of the database. If this instance is told to leave meanwhile, no further call of a handler
    /// begins, however long the database takes.
    async fn heeding<R>(&self, calls: impl Future<Output = R>) -> R {
        let (mut told, mut calls) = (self.draining.clone(), pin!(calls));
        tokio::select! {
            biased;
            done = &mut calls => return done,
            _ = told.wait_for(|told| *told) => {}
        }
        self.ownership.drain(self.ownership.held());
        calls.await
    }

    /// Reads one view and carries out this instance's part.
    async fn tick(&self, observations: &mut Observations) -> Result<Ticked, StoreError> {
        let mut view = self.store.view().await?;
        let Some(state) = self.state_in(&view) else { return Ok(Ticked::Evicted) };
        if self.has_lost_claims(&view) {
            return Ok(Ticked::Evicted);
        }
        if state == InstanceState::Draining {
            return Ok(Ticked::Drained);
        }
        // A claim whose reply was lost may have been written. No other instance wants such a partition, so
        // without this grant no instance would work on it.
        let own = |partition: &Partition| view.claims[partition.index()].owner == Some(self.me);
        let claim = |partition: Partition| (partition, view.claims[partition.index()].generation);
        self.grant(&Partition::all().filter(own).map(claim).collect::<Vec<_>>());
        // A pause between two statements must not make the view younger than it is.
        let at = self.ownership.clock().now();
        self.evict_silent(&mut view, at, observations).await?;
        let moves = self.moves(&view);
        self.carry_out(&moves, &view).await?;
        self.evict_overdue(&moves, (&view, at), observations).await?;
        Ok(if moves.awaited.is_empty() { Ticked::Settled } else { Ticked::Awaiting })
    }

    /// Whether a partition that this instance works on was taken by another, or its claim is gone: a person
    /// has moved it, a backup was restored, or a failover has lost the last claims. All claims were
    /// acknowledged before this view was read, so the view is right. The fence rows are shared by all
    /// partitions, so the instance gives up all of them: then none of its late outcomes can be written.
    fn has_lost_claims(&self, view: &ClusterView) -> bool {
        let is_other = |partition: &Partition| {
            let claim = view.claims[partition.index()];
            claim.owner != Some(self.me) || self.ownership.generation(*partition) != Some(claim.generation)
        };
        let lost: PartitionSet = self.ownership.held().iter().filter(is_other).collect();
        // The partition was released, and only the reply was lost: no work goes on there.
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
        at: Duration,
        observations: &mut Observations,
    ) -> Result<(), StoreError> {
        for suspect in self.suspects(view, at, observations) {
            if self.store.evict(suspect.id, Some(suspect.beat)).await? {
                let silent_for = Some(suspect.silent_for);
                self.observers.emit(Signal::PeerEvicted { instance: suspect.id, silent_for });
            }
            // The suspect was evicted by this instance or another, or is alive after all: the next view shows
            // it. Its partitions are claimed by compare-and-set, so a wrong guess does no harm.
            view.members.retain(|member| member.id != suspect.id);
        }
        Ok(())
    }

    async fn carry_out(&self, moves: &Moves, view: &ClusterView) -> Result<(), StoreError> {
        if *self.draining.borrow() {
            // The others must see that this instance leaves before they see that its partitions are free.
            return Ok(());
        }
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

    /// Evicts instances that beat, but have not released partitions that this instance waits for, by the time of
    /// the view.
    async fn evict_overdue(
        &self,
        moves: &Moves,
        (view, at): (&ClusterView, Duration),
        observations: &mut Observations,
    ) -> Result<(), StoreError> {
        let mut holders: BTreeMap<InstanceId, PartitionSet> = BTreeMap::new();
        for partition in moves.awaited.iter() {
            if let Some(owner) = view.claims[partition.index()].owner {
                holders.entry(owner).or_default().insert(partition);
            }
        }
        for instance in observations.overdue(&holders, at, self.config.handover_timeout) {
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

    /// Drains all partitions, and releases each one when it has no permits. No further call begins, even if the
    /// database is away.
    async fn leave(&self) -> Departure {
        let pause = self.config.heartbeat_interval / 5;
        self.ownership.drain(self.ownership.held());
        while let Err(error) = self.store.drain(self.me).await {
            self.report(&error);
            tokio::time::sleep(pause).await;
        }
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
        store::{NewInstance, StoreSettings},
        telemetry::Observer,
    };

    /// A member with its database, and the claims that were signalled as lost.
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
            let settings = StoreSettings { call_timeout: Duration::from_secs(1), ..StoreSettings::default() };
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
                observers: Observers::new(vec![Arc::new(NotesLost(Arc::clone(&lost)))]),
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

        /// The first owned partition and its generation.
        fn first(&self) -> (Partition, Generation) {
            let ownership = &self.rebalancer.ownership;
            let first = ownership.held().iter().next().unwrap();
            (first, ownership.generation(first).unwrap())
        }

        /// Deletes this claim from the database.
        async fn delete(&self, claim: (Partition, Generation)) {
            let Rebalancer { store, me, .. } = &self.rebalancer;
            assert_eq!(store.release(*me, &[claim]).await.unwrap(), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_whose_claim_another_has_gives_everything_up() {
        let stage = Stage::new().await;
        assert!(matches!(stage.tick().await, Ticked::Settled));
        let (partition, generation) = stage.first();
        stage.delete((partition, generation)).await;
        let claimed = stage.rebalancer.store.claim(stage.other, &[(partition, generation)]).await.unwrap();
        assert_eq!(claimed, [(partition, Generation(generation.0 + 1))]);
        assert!(matches!(stage.tick().await, Ticked::Evicted));
        assert_eq!(*stage.lost.lock().unwrap(), PartitionSet::from_iter([partition]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_whose_claim_the_database_has_lost_gives_everything_up() {
        let stage = Stage::new().await;
        stage.delete(stage.first()).await;
        assert!(matches!(stage.tick().await, Ticked::Evicted));
    }

    /// The partition came back in a later generation: the owner between may have worked on it.
    #[tokio::test(start_paused = true)]
    async fn a_member_whose_claim_is_of_another_generation_gives_everything_up() {
        let stage = Stage::new().await;
        let claim = stage.first();
        stage.delete(claim).await;
        let Rebalancer { store, me, .. } = &stage.rebalancer;
        assert_eq!(store.claim(*me, &[claim]).await.unwrap().len(), 128);
        assert!(matches!(stage.tick().await, Ticked::Evicted));
    }

    /// A process was paused, and woke with a view from before its pause.
    #[tokio::test(start_paused = true)]
    async fn a_view_from_before_a_pause_evicts_nobody() {
        let stage = Stage::new().await;
        let Rebalancer { store, ownership, config, .. } = &stage.rebalancer;
        let free = Partition::all().filter(|partition| !ownership.held().contains(*partition));
        let free: Vec<_> = free.map(|partition| (partition, Generation::default())).collect();
        store.claim(stage.other, &free).await.unwrap();
        let (claim, release) = (PartitionSet::EMPTY, PartitionSet::EMPTY);
        let moves = Moves { claim, release, awaited: PartitionSet::from_iter([free[0].0]) };
        let (view, mut observations) = (store.view().await.unwrap(), Observations::default());
        let lives = async |at, observations: &mut Observations| {
            stage.rebalancer.evict_overdue(&moves, (&view, at), observations).await.unwrap();
            let members = store.view().await.unwrap().members;
            members.iter().any(|member| member.id == stage.other && member.state.is_live())
        };
        assert!(lives(ownership.clock().now(), &mut observations).await);
        tokio::time::advance(config.handover_timeout / 2).await;
        let at = ownership.clock().now();
        tokio::time::advance(config.handover_timeout).await;
        assert!(lives(at, &mut observations).await, "at the time of the view it was not overdue");
        assert!(!lives(ownership.clock().now(), &mut observations).await);
    }

    /// The release was written, and only the reply was lost.
    #[tokio::test(start_paused = true)]
    async fn a_partition_that_was_drained_may_be_gone() {
        let stage = Stage::new().await;
        let claim = stage.first();
        let ownership = &stage.rebalancer.ownership;
        ownership.drain(PartitionSet::from_iter([claim.0]));
        stage.delete(claim).await;
        assert!(matches!(stage.tick().await, Ticked::Settled));
        assert_eq!(ownership.generation(claim.0), Some(Generation(claim.1.0 + 1)), "it was free to claim");
        assert!(ownership.is_open(claim.0));
    }
}
