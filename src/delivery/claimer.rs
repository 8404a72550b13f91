//! The claimer: the dispatcher of claimed mode. It claims records, runs them as partitioned mode does, and writes
//! their outcomes.
//!
//! One lease of the process stands for all leases of its claims. A renewal begins them again together, so the
//! oldest lease began when the last answered renewal was sent, or, if nothing was held then, the claim. Before
//! each call of a handler that lease must hold, on a clock that counts suspended time.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::{
    background::{Task, result_of},
    claims::{Claims, Wanted, Writer, Written},
    config::DeliveryConfig,
    execute::{Event, ExecContext, Executor, ExecutorSetup},
    shares::Shares,
};
use crate::{
    commit_wake::CommitWake,
    handler::Registry,
    instance::InstanceId,
    ownership::Ownership,
    record::RecordId,
    store::{ClaimOutcome, Claimed, Claiming, FenceRow, Store, StoreError},
    telemetry::{Observers, Signal},
};

/// Everything that a claimer works with.
pub(crate) struct ClaimerSetup {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) config: DeliveryConfig,
    /// Owns all partitions. Its lease is that of the claims.
    pub(crate) ownership: Ownership,
    pub(crate) wake: CommitWake,
    pub(crate) observers: Observers,
    /// The owner of the claims.
    pub(crate) me: FenceRow,
    /// Turns true when nothing more is to begin.
    pub(crate) stopped: watch::Receiver<bool>,
}

/// Delivers what one instance claims. Dropping it cancels the handlers that run.
pub(crate) struct Claimer {
    claims: Claims,
    executor: Executor,
    /// Whether the lease held at the last check.
    leased: bool,
    /// When the claim under way was sent, on the clock.
    claim_sent: Option<Duration>,
    /// Whether the last call of the database has failed.
    failing: bool,
    /// Whether the last answer was that of a claim. Then outcomes are written next, if there are any.
    claimed_last: bool,
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    ownership: Ownership,
    wake: CommitWake,
    observers: Observers,
    me: InstanceId,
    stopped: watch::Receiver<bool>,
    lease: Duration,
}

/// A claim that was answered: what was wanted, when it was sent on the clock, and the answer.
type Answer = (Wanted, Duration, Result<Claimed, StoreError>);
/// A renewal that was answered: when it was sent, its claims with their tokens, and the records that are not held
/// any more.
type Renewed = (Duration, Vec<(RecordId, i64)>, Result<Vec<RecordId>, StoreError>);

impl Claimer {
    pub(crate) fn new(setup: ClaimerSetup) -> Self {
        let ClaimerSetup { store, registry, config, ownership, wake, observers, me, stopped } = setup;
        let context = ExecContext {
            states: registry.states.clone(),
            observers: observers.clone(),
            clock: ownership.clock(),
            targets: ownership.vitals().targets().clone(),
            longest_hold: Duration::MAX,
        };
        let executor =
            ExecutorSetup { store: Arc::clone(&store), fence: me, claimed: true, config: &config, context };
        let shares = Shares::new(registry.entries(), config.memory());
        Self {
            claims: Claims::new(me.instance, &config, shares, Instant::now()),
            executor: Executor::new(executor),
            leased: false,
            claim_sent: None,
            failing: false,
            claimed_last: false,
            store,
            registry,
            ownership,
            wake,
            observers,
            me: me.instance,
            stopped,
            lease: config.claim_lease,
        }
    }

    /// The records that are claimed and not settled.
    pub(crate) fn held(&self) -> usize {
        self.claims.held()
    }

    /// Delivers until a stop was asked for and nothing is held, or a task of the library panicked. Returns
    /// whether all work has ended.
    pub(crate) async fn run(&mut self) -> bool {
        let mut claiming: Option<Task<Answer>> = None;
        let mut settling: Option<Task<(Vec<ClaimOutcome>, Written)>> = None;
        let mut renewing: Option<Task<Renewed>> = None;
        self.claims.want();
        loop {
            if *self.stopped.borrow_and_update() {
                self.claims.stop();
            }
            let in_turn = self.claims.are_in_turn(self.store.has_one_writer());
            if in_turn {
                // The outcomes of the runs under way are written before the next claim.
                self.start_runs();
            }
            for claims in [!self.claimed_last, self.claimed_last] {
                if in_turn && (claiming.is_some() || settling.is_some()) {
                    break;
                }
                match claims {
                    true if in_turn && self.claims.settles_soon(Instant::now()) => {}
                    true => claiming = claiming.or_else(|| self.start_claim()),
                    false => settling = settling.or_else(|| self.start_settle()),
                }
            }
            self.start_runs();
            renewing = renewing.or_else(|| self.start_renewal());
            self.claims.take_signals().into_iter().for_each(|signal| self.observers.emit(signal));
            if *self.stopped.borrow() && claiming.is_none() && settling.is_none() && self.claims.is_empty() {
                return true;
            }
            let timer = self.next_timer();
            tokio::select! {
                event = self.executor.next() => match event {
                    Event::Landed(reports) => {
                        let now = Instant::now();
                        let runs = reports.into_iter().flat_map(|report| report.runs);
                        runs.for_each(|run| self.claims.land(run, now));
                    }
                    Event::TasksEnded { panicked: true } => return false,
                    Event::TasksEnded { panicked: false } | Event::SlotFreed | Event::Evicted => {}
                },
                answer = result_of(&mut claiming) => {
                    claiming = None;
                    let Some(answer) = answer else { return false };
                    self.claimed(answer);
                }
                settled = result_of(&mut settling) => {
                    settling = None;
                    let Some((outcomes, written)) = settled else { return false };
                    self.settled(outcomes, written);
                }
                renewed = result_of(&mut renewing) => {
                    renewing = None;
                    let Some(renewed) = renewed else { return false };
                    self.renewed(renewed);
                }
                () = self.wake.nudged() => self.claims.want(),
                Ok(()) = self.stopped.changed() => {}
                () = tokio::time::sleep_until(timer) => {
                    self.claims.fire(Instant::now());
                    self.check_lease();
                }
            }
        }
    }

    fn start_claim(&mut self) -> Option<Task<Answer>> {
        let wanted = self.claims.next_claim(self.registry.entries().count(), Instant::now())?;
        let claim = Claiming {
            owner: self.me,
            lease: self.lease,
            source: wanted.source,
            handlers: wanted.handlers.clone(),
            limit: wanted.limit,
        };
        let (store, sent) = (Arc::clone(&self.store), self.ownership.clock().now());
        self.claim_sent = Some(sent);
        Some(Task::start(async move { (wanted, sent, store.claim_records(claim).await) }))
    }

    fn claimed(&mut self, (wanted, sent, answer): Answer) {
        (self.claim_sent, self.claimed_last) = (None, true);
        match answer {
            Ok(claimed) => {
                self.answered();
                self.ownership.vitals().fetch_answered();
                if self.claims.held() == 0 {
                    // Nothing else is held, so the oldest lease is that of this claim.
                    self.ownership.renew(sent, self.lease);
                    self.leased = true;
                }
                let (now, began) = (Instant::now(), self.ownership.clock().now());
                self.claims.admit(&wanted, claimed, (&self.registry, &self.ownership), (began, now));
            }
            Err(error) => {
                self.failed(&error);
                self.ownership.vitals().fetch_failed();
                self.claims.claim_failed(&wanted, Instant::now());
            }
        }
    }

    fn start_runs(&mut self) {
        // Without a lease, every run would end untried and would be ready again at once.
        if self.ownership.lease_holds() {
            let (claims, now) = (&mut self.claims, Instant::now());
            self.executor.start(|vacancy| claims.next_run(vacancy, now));
        }
    }

    fn start_settle(&mut self) -> Option<Task<(Vec<ClaimOutcome>, Written)>> {
        let outcomes = self.claims.next_outcomes(Instant::now())?;
        self.ownership.vitals().settle_begins();
        let writer = Writer::new(Arc::clone(&self.store), self.observers.clone(), self.me);
        Some(Task::start(async move {
            let written = writer.write(&outcomes).await;
            (outcomes, written)
        }))
    }

    fn settled(&mut self, outcomes: Vec<ClaimOutcome>, Written { records, refused }: Written) {
        self.answered();
        self.claimed_last = false;
        self.ownership.vitals().settle_ends();
        self.observers.emit(Signal::Settled { records });
        let outlived = outcomes.len().saturating_sub(records + refused.len());
        if outlived > 0 {
            self.observers.emit(Signal::ClaimsOutlived { records: outlived });
        }
        self.claims.settled(outcomes, &refused, Instant::now());
    }

    fn start_renewal(&mut self) -> Option<Task<Renewed>> {
        let claims = self.claims.next_renewal(Instant::now())?;
        let records: Vec<RecordId> = claims.iter().map(|(id, _)| *id).collect();
        // The claim under way is older than this renewal, which does not cover it.
        let sent = self.claim_sent.unwrap_or_else(|| self.ownership.clock().now());
        let store = Arc::clone(&self.store);
        let (me, lease) = (self.me, self.lease);
        Some(Task::start(async move { (sent, claims, store.renew_claims(me, lease, &records).await) }))
    }

    fn renewed(&mut self, (sent, claims, renewed): Renewed) {
        match renewed {
            Ok(lost) => {
                self.answered();
                self.ownership.renew(sent, self.lease);
                let lost: HashSet<RecordId> = lost.into_iter().collect();
                let lost = self.claims.lost(claims.into_iter().filter(|(id, _)| lost.contains(id)));
                if lost > 0 {
                    self.observers.emit(Signal::ClaimsOutlived { records: lost });
                }
            }
            Err(error) => {
                self.failed(&error);
                self.claims.renew_again(Instant::now());
            }
        }
    }

    fn next_timer(&self) -> Instant {
        let now = Instant::now();
        let left = self.ownership.lease_left();
        let lapse = (!left.is_zero()).then(|| now + left);
        lapse.into_iter().fold(self.claims.next_timer(now), Instant::min)
    }

    fn check_lease(&mut self) {
        let holds = self.ownership.lease_holds();
        if self.leased && !holds && self.claims.held() > 0 {
            self.observers.emit(Signal::LeaseLapsed);
            self.executor.cancel_all();
            self.claims.lapse();
        }
        self.leased = holds;
    }

    fn answered(&mut self) {
        if std::mem::take(&mut self.failing) {
            self.observers.emit(Signal::BeatAnswered);
        }
    }

    fn failed(&mut self, error: &StoreError) {
        self.failing = true;
        self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{delivery::fixtures, memory::MemoryPool, rules::lease::trusted_until};

    const LEASE: Duration = Duration::from_secs(10);

    /// A claimer that has claimed one record just now.
    async fn claimer() -> Claimer {
        let ownership = fixtures::owning_all();
        ownership.lose();
        let mut claimer = Claimer::new(ClaimerSetup {
            store: fixtures::store(&MemoryPool::new()),
            registry: fixtures::registry(|_| Ok(())),
            config: DeliveryConfig { claim_lease: LEASE, ..DeliveryConfig::default() },
            ownership,
            wake: CommitWake::default(),
            observers: Observers::default(),
            me: fixtures::fence(),
            stopped: watch::channel(false).1,
        });
        claimer.claims.want();
        let mut claiming = claimer.start_claim();
        let (wanted, sent, _) = result_of(&mut claiming).await.unwrap();
        let records = vec![fixtures::record(1, "a").into()];
        claimer.claimed((wanted, sent, Ok(Claimed { selected: 1, records, ..Claimed::default() })));
        claimer
    }

    /// The lease that is trusted from a call on that was sent so long ago.
    fn left_since(ago: Duration) -> Duration {
        trusted_until(Duration::ZERO, LEASE) - ago
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_begins_when_its_call_is_sent() {
        let (mut claimer, second) = (claimer().await, Duration::from_secs(1));
        assert_eq!(claimer.ownership.lease_left(), left_since(Duration::ZERO));
        tokio::time::advance(4 * second).await;
        let mut renewing = claimer.start_renewal();
        tokio::time::advance(second).await;
        let renewed = result_of(&mut renewing).await.unwrap();
        claimer.renewed(renewed);
        assert_eq!(claimer.ownership.lease_left(), left_since(second), "the answer took a second");

        let mut claimer = self::claimer().await;
        claimer.ownership.lose();
        claimer.claims.lapse();
        let mut claiming = claimer.start_claim();
        tokio::time::advance(second).await;
        let answer = result_of(&mut claiming).await.unwrap();
        claimer.claimed(answer);
        assert_eq!(claimer.ownership.lease_left(), left_since(second), "the first of all claims");
    }

    /// The records of that claim have leases that began before the renewal.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_does_not_cover_the_claim_under_way() {
        let (mut claimer, second) = (claimer().await, Duration::from_secs(1));
        tokio::time::advance(2 * second).await;
        claimer.claims.want();
        let claiming = claimer.start_claim();
        assert!(claiming.is_some());
        tokio::time::advance(2 * second).await;
        let mut renewing = claimer.start_renewal();
        let renewed = result_of(&mut renewing).await.unwrap();
        claimer.renewed(renewed);
        assert_eq!(claimer.ownership.lease_left(), left_since(2 * second));
    }
}
