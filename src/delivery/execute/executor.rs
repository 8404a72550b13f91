//! The executor: the tasks in which runs are under way, and what comes back from them.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
};

use super::{
    context::ExecContext,
    slot::{Slot, SlotPool},
    task::{Together, fly},
    tracked::{fly_tracked, tell, to_track},
};
use crate::{
    delivery::{
        config::DeliveryConfig,
        outcome::{Landed, Report, Run},
    },
    instance::InstanceId,
    rules::pacing,
    store::{FenceRow, Store, StoreError},
    wake::Wake,
};

/// Reports that are received at once.
const REPORTS: usize = 1024;

/// What an executor works with.
pub(in crate::delivery) struct ExecutorSetup<'a> {
    pub(in crate::delivery) store: Arc<dyn Store>,
    /// The fence row of the settler.
    pub(in crate::delivery) fence: FenceRow,
    pub(in crate::delivery) config: &'a DeliveryConfig,
    pub(in crate::delivery) context: ExecContext,
}

/// Something that has happened in the tasks.
pub(in crate::delivery) enum Event {
    /// Runs have ended, or parts of them.
    Landed(Vec<Landed>),
    /// Tasks have ended; `panicked`: one of them by a fault of the library.
    TasksEnded { panicked: bool },
    /// A transactional run may start.
    SlotFreed,
    /// A fence row was found closed: this instance has been evicted.
    Evicted,
}

/// Runs the runs of one instance. Dropping it cancels them.
pub(in crate::delivery) struct Executor {
    /// For what is tracked. Never changes.
    store: Arc<dyn Store>,
    /// Never changes.
    instance: InstanceId,
    /// What attempts share. Never changes.
    context: Arc<ExecContext>,
    /// Runs under way of handlers that are not transactional, at most.
    concurrency: usize,
    /// How many there are. Counted by `start` and by the last report of a run.
    plain_runs: usize,
    /// What a run takes of the processor, lately. Moved by reports.
    mean_run: Duration,
    /// Spawned by `start` and `call`, taken by `next`.
    tasks: JoinSet<()>,
    /// Where runs report that they have ended.
    done: mpsc::UnboundedSender<Report>,
    /// The other end, emptied by `next`.
    reports: mpsc::UnboundedReceiver<Report>,
    /// Reports that were received and not taken yet, between two polls of `next`.
    received: Vec<Report>,
    /// The fence rows of transactional runs.
    slots: Arc<SlotPool>,
    /// Nudged when a fence row is free again.
    freed: Wake,
    /// Nudged when one was found closed.
    evicted: Wake,
}

impl Executor {
    pub(in crate::delivery) fn new(setup: ExecutorSetup<'_>) -> Self {
        let ExecutorSetup { store, fence, config, context } = setup;
        let (freed, evicted) = (Wake::default(), Wake::default());
        let (guarded, told) = (Arc::clone(&store), context.observers.clone());
        let size = config.transactional_concurrency;
        let slots = SlotPool::new(guarded, told, fence, size, freed.clone(), evicted.clone());
        let (done, reports) = mpsc::unbounded_channel();
        Self {
            store,
            instance: fence.instance,
            context: Arc::new(context),
            concurrency: config.concurrency,
            plain_runs: 0,
            mean_run: Duration::from_millis(1),
            tasks: JoinSet::new(),
            done,
            reports,
            received: Vec::new(),
            slots: Arc::new(slots),
            freed,
            evicted,
        }
    }

    /// Starts what may run; `next_run` gives the next run of a kind, transactional or not. Many short runs share
    /// a task and report together what ended together: a task and a report each would cost more than a short
    /// handler does.
    pub(in crate::delivery) fn start(&mut self, mut next_run: impl FnMut(bool) -> Option<Run>) {
        let mut runs = Vec::new();
        while self.plain_runs < self.concurrency {
            let Some(run) = next_run(false) else { break };
            self.plain_runs += 1;
            self.collect(&mut runs, run, None);
        }
        while let Some(slot) = self.slots.slot() {
            let Some(run) = next_run(true) else { break };
            self.collect(&mut runs, run, Some(slot));
        }
        let share = pacing::runs_per_task(self.mean_run);
        while !runs.is_empty() {
            let together = Together::new(runs.split_off(runs.len().saturating_sub(share)), self.done.clone());
            self.tasks.spawn(fly(together, Arc::clone(&self.context)));
        }
    }

    /// A run whose call is tracked has a task of its own; others are collected.
    fn collect(&mut self, runs: &mut Vec<(Run, Option<Slot>)>, run: Run, slot: Option<Slot>) {
        let Some(record) = to_track(&run) else { return runs.push((run, slot)) };
        let together = Together::new(vec![(run, slot)], self.done.clone());
        let store = (Arc::clone(&self.store), self.instance);
        self.tasks.spawn(fly_tracked(together, record, store, Arc::clone(&self.context)));
    }

    /// Makes a call of the store whose result matters to nobody; that it failed is told.
    pub(in crate::delivery) fn call<F>(&mut self, call: impl FnOnce(Arc<dyn Store>) -> F)
    where
        F: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        let (call, context) = (call(Arc::clone(&self.store)), Arc::clone(&self.context));
        self.tasks.spawn(async move {
            tell(call, &context).await;
        });
    }

    /// Cancels all runs. Each reports as it ends; one that blocks its thread keeps its own lane waiting, no other.
    pub(in crate::delivery) fn cancel_all(&mut self) {
        self.tasks.abort_all();
    }

    /// Waits for the next event. Cancel safe.
    pub(in crate::delivery) async fn next(&mut self) -> Event {
        tokio::select! {
            count = self.reports.recv_many(&mut self.received, REPORTS) => {
                debug_assert!(count > 0, "the sender is kept beside the receiver");
                let mut landed = Vec::with_capacity(self.received.len());
                for Report { runs, mean_run } in self.received.drain(..) {
                    self.mean_run = mean_run.map_or(self.mean_run, |mean_run| (self.mean_run + mean_run) / 2);
                    let ended = runs.iter().filter(|run| !run.goes_on && !run.transactional).count();
                    self.plain_runs = self.plain_runs.saturating_sub(ended);
                    landed.extend(runs);
                }
                Event::Landed(landed)
            }
            Some(ended) = self.tasks.join_next() => {
                let is_panic = |ended: Result<(), JoinError>| ended.is_err_and(|error| error.is_panic());
                let mut panicked = is_panic(ended);
                while let Some(ended) = self.tasks.try_join_next() {
                    panicked |= is_panic(ended);
                }
                Event::TasksEnded { panicked }
            }
            () = self.freed.nudged() => Event::SlotFreed,
            () = self.evicted.nudged() => Event::Evicted,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, VecDeque},
        sync::atomic::{AtomicU64, Ordering},
    };

    use proptest::prelude::*;

    use super::*;
    use crate::{
        delivery::{
            fixtures,
            outcome::{LaneRun, Outcome},
            work::LaneId,
        },
        handler::HandlerError,
        memory::MemoryPool,
    };

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

        /// Runs of so many records each; some handlers fail, and all is cancelled after so many events: every
        /// record is reported once, and its permit is with its report.
        #[test]
        fn every_record_is_reported_once(
            runs in prop::collection::vec(1_i64..6, 1..40),
            failing in 2_u64..9,
            cancelled_after in 0_usize..20,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.unwrap().block_on(async {
                let calls = AtomicU64::new(0);
                let registry = fixtures::registry(move |_| {
                    match calls.fetch_add(1, Ordering::SeqCst) % failing {
                        0 => Err(HandlerError::new("no")),
                        _ => Ok(()),
                    }
                });
                let ownership = fixtures::owning_all();
                let config = DeliveryConfig { concurrency: 7, ..DeliveryConfig::default() };
                let mut executor = Executor::new(ExecutorSetup {
                    store: fixtures::store(&MemoryPool::new()),
                    fence: fixtures::fence(),
                    config: &config,
                    context: fixtures::context(&ownership),
                });
                let mut waiting = VecDeque::new();
                let mut id = 0;
                for (lane, count) in runs.iter().enumerate() {
                    let records = (0..*count).map(|_| {
                        id += 1;
                        fixtures::item(&ownership, fixtures::record(id, "a"))
                    });
                    let lanes = smallvec::smallvec![LaneRun::new(LaneId(lane as u32), records)];
                    let entry = Arc::clone(registry.entry("h", "t").unwrap());
                    waiting.push_back(Run { entry, lanes });
                }
                let mut reported: BTreeMap<i64, u32> = BTreeMap::new();
                let (mut over, mut events) = (0, 0);
                while over < runs.len() {
                    executor.start(|transactional| if transactional { None } else { waiting.pop_front() });
                    assert!(executor.plain_runs <= 7, "no more runs than calls are allowed");
                    if events == cancelled_after {
                        executor.cancel_all();
                    }
                    events += 1;
                    let Event::Landed(landed) = executor.next().await else { continue };
                    for lane in landed.into_iter().flat_map(|landed| landed.lanes) {
                        over += usize::from(lane.over);
                        for (item, outcome) in lane.items {
                            assert!(!matches!(outcome, Outcome::Aborted(_) | Outcome::Written));
                            *reported.entry(item.id()).or_default() += 1;
                        }
                    }
                }
                assert_eq!(reported, (1..=id).map(|id| (id, 1)).collect());
                assert_eq!(ownership.permits_out(), 0);
            });
        }
    }
}
