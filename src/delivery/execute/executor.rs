//! The executor: the tasks of the runs under way, and what the tasks report.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
};

use super::{
    context::ExecContext,
    pilot::Pilot,
    runs::Runs,
    slot::{Slot, SlotPool},
    task::fly,
    tracked::{fly_tracked, tell, to_track},
    watch::Watch,
};
use crate::{
    delivery::{
        config::DeliveryConfig,
        outcome::{Report, Run},
        shares::Vacancy,
    },
    instance::InstanceId,
    rules::pacing::{self, Pace},
    store::{FenceRow, Store, StoreError},
    wake::{Wake, unhindered},
};

/// The most reports that one receive takes.
const REPORTS: usize = 1024;

/// What the constructor of an executor takes.
pub(in crate::delivery) struct ExecutorSetup<'a> {
    pub(in crate::delivery) store: Arc<dyn Store>,
    /// The fence row of the settler. The fence rows of the slots follow it.
    pub(in crate::delivery) fence: FenceRow,
    /// Whether the records are claimed: their tokens take the place of fence rows.
    pub(in crate::delivery) claimed: bool,
    pub(in crate::delivery) config: &'a DeliveryConfig,
    pub(in crate::delivery) context: ExecContext,
}

/// An event in the tasks of the executor.
pub(in crate::delivery) enum Event {
    /// Runs have ended or have reported a part of their records.
    Landed(Vec<Report>),
    /// Tasks have ended. `panicked`: at least one of them panicked, by a fault of the library.
    TasksEnded { panicked: bool },
    /// A fence row is free: a transactional run may start.
    SlotFreed,
    /// A fence row was found closed: this instance has been evicted.
    Evicted,
}

/// Starts the runs of one instance and collects their reports. Dropping the executor cancels all runs.
pub(in crate::delivery) struct Executor {
    /// Where tracked calls are written. Never changes.
    store: Arc<dyn Store>,
    /// This instance, the owner of tracked calls. Never changes.
    instance: InstanceId,
    /// What attempts share. Never changes.
    context: Arc<ExecContext>,
    /// The most runs of non-transactional handlers under way. Never changes.
    concurrency: usize,
    /// Non-transactional runs under way. Raised by `start`, lowered by `next` with the last report of a run.
    plain_runs: usize,
    /// The pace of the last runs; its mean is a moving average. Written by `next` from the reports.
    pace: Pace,
    /// The tasks under way. Spawned by `start`, `call` and `next`, joined by `next`.
    tasks: JoinSet<()>,
    /// Finds the tasks that a call holds up. Written by `spawn`, asked by `next`.
    watch: Watch,
    /// The sender that tasks report to. Each task has a clone. Never changes.
    done: mpsc::UnboundedSender<Report>,
    /// The receiver of the reports. Emptied by `next`.
    reports: mpsc::UnboundedReceiver<Report>,
    /// The fence rows of transactional runs. Taken by `start`, returned by the drop of a slot.
    slots: Arc<SlotPool>,
    /// Nudged by the slot pool when a fence row is free again.
    freed: Wake,
    /// Nudged by the slot pool when a fence row was found closed.
    evicted: Wake,
}

impl Executor {
    pub(in crate::delivery) fn new(setup: ExecutorSetup<'_>) -> Self {
        let ExecutorSetup { store, fence, claimed, config, context } = setup;
        let (freed, evicted) = (Wake::default(), Wake::default());
        let (guarded, told) = (Arc::clone(&store), context.observers.clone());
        let size = (config.transactional_concurrency, claimed);
        let slots = SlotPool::new(guarded, told, fence, size, freed.clone(), evicted.clone());
        let (done, reports) = mpsc::unbounded_channel();
        Self {
            store,
            instance: fence.instance,
            context: Arc::new(context),
            concurrency: config.concurrency,
            plain_runs: 0,
            pace: Pace { mean: Duration::from_millis(1), waits: true },
            tasks: JoinSet::new(),
            watch: Watch::default(),
            done,
            reports,
            slots: Arc::new(slots),
            freed,
            evicted,
        }
    }

    /// Starts the runs that the limits allow. `next_run` returns the next run of a kind. Many short runs share a
    /// task and report together: a task and a report per run would cost more than a short handler.
    pub(in crate::delivery) fn start(&mut self, mut next_run: impl FnMut(Vacancy) -> Option<Run>) {
        let mut runs = self.no_runs();
        while self.plain_runs < self.concurrency {
            let free = self.concurrency - self.plain_runs;
            let Some(run) = next_run(Vacancy { transactional: false, free }) else { break };
            self.plain_runs += 1;
            self.collect(&mut runs, run, None);
        }
        while let Some(slot) = self.slots.slot() {
            let free = self.slots.idle() + 1;
            let Some(run) = next_run(Vacancy { transactional: true, free }) else { break };
            self.collect(&mut runs, run, Some(slot));
        }
        self.spawn(runs);
    }

    fn no_runs(&self) -> Runs {
        Runs::new(Arc::clone(&self.context), self.done.clone())
    }

    /// Adds a run to those of the next task, and starts the task when it is full. A run with a tracked call
    /// gets a task of its own.
    fn collect(&mut self, runs: &mut Runs, run: Run, slot: Option<Slot>) {
        if let Some(record) = to_track(&run) {
            let mut alone = self.no_runs();
            alone.push(run, slot, 1);
            let store = (Arc::clone(&self.store), self.instance);
            self.tasks.spawn(unhindered(fly_tracked(Arc::new(alone), record, store)));
            return;
        }
        let share = pacing::runs_per_task(self.pace);
        runs.push(run, slot, share);
        if runs.len() >= share {
            let next = self.no_runs();
            self.spawn(std::mem::replace(runs, next));
        }
    }

    fn spawn(&mut self, runs: Runs) {
        if runs.len() > 0 {
            let pilot = Arc::new(Pilot::new(Arc::new(runs)));
            self.watch.add(&pilot);
            self.tasks.spawn(fly(pilot));
        }
    }

    /// Calls the store in a task. The result is ignored; a failure becomes a signal.
    pub(in crate::delivery) fn call<F>(&mut self, call: impl FnOnce(Arc<dyn Store>) -> F)
    where
        F: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        let (call, context) = (call(Arc::clone(&self.store)), Arc::clone(&self.context));
        self.tasks.spawn(unhindered(async move {
            tell(call, &context).await;
        }));
    }

    /// Cancels all runs. One whose call blocks its thread ends when the call returns.
    pub(in crate::delivery) fn cancel_all(&mut self) {
        self.tasks.abort_all();
        for flight in self.watch.cancel_all() {
            // The drop of the user's future may block its thread.
            self.tasks.spawn(async move { drop(flight) });
        }
    }

    /// Waits for the next event. Cancel safe.
    pub(in crate::delivery) async fn next(&mut self) -> Event {
        let mut reports = Vec::new();
        loop {
            tokio::select! {
                count = self.reports.recv_many(&mut reports, REPORTS) => {
                    debug_assert!(count > 0, "the sender is kept beside the receiver");
                    self.reported(&reports);
                    return Event::Landed(reports);
                }
                Some(ended) = self.tasks.join_next() => {
                    let is_panic = |ended: Result<(), JoinError>| ended.is_err_and(|error| error.is_panic());
                    let mut panicked = is_panic(ended);
                    while let Some(ended) = self.tasks.try_join_next() {
                        panicked |= is_panic(ended);
                    }
                    return Event::TasksEnded { panicked };
                }
                () = self.freed.nudged() => return Event::SlotFreed,
                () = self.evicted.nudged() => return Event::Evicted,
                relieved = self.watch.relieved() => {
                    relieved.into_iter().for_each(|pilot| drop(self.tasks.spawn(fly(pilot))));
                }
            }
        }
    }

    fn reported(&mut self, reports: &[Report]) {
        for Report { runs, pace } in reports {
            if let Some(Pace { mean, waits }) = *pace {
                self.pace = Pace { mean: (self.pace.mean + mean) / 2, waits };
            }
            let is_over = |run: &&Run| !run.goes_on && !run.entry.form.is_transactional();
            self.plain_runs = self.plain_runs.saturating_sub(runs.iter().filter(is_over).count());
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
        handler::{BoxFuture, Call, Context, HandlerError, RecordTypes, Registration},
        memory::MemoryPool,
        ownership::Ownership,
    };

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

        /// `runs` has the number of records of each run. Some handlers fail, and all runs are cancelled after
        /// `cancelled_after` events. Each record is reported once, with its permit.
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
                    claimed: false,
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
                    waiting.push_back(Run::new(entry, lanes));
                }
                let mut reported: BTreeMap<i64, u32> = BTreeMap::new();
                let (mut over, mut events) = (0, 0);
                while over < runs.len() {
                    executor.start(|vacancy| if vacancy.transactional { None } else { waiting.pop_front() });
                    let started = runs.len() - waiting.len();
                    assert!(started - over <= 7, "no more runs than calls are allowed");
                    if events == cancelled_after {
                        executor.cancel_all();
                    }
                    events += 1;
                    let Event::Landed(landed) = executor.next().await else { continue };
                    for lane in landed.into_iter().flat_map(|report| report.runs).flat_map(|run| run.lanes) {
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

    /// A handler that never returns.
    struct Hangs;

    impl Call for Hangs {
        fn call<'a>(&'a self, _: Context<'a>) -> BoxFuture<'a, Result<(), HandlerError>> {
            Box::pin(std::future::pending())
        }
    }

    fn executor(ownership: &Ownership) -> Executor {
        Executor::new(ExecutorSetup {
            store: fixtures::store(&MemoryPool::new()),
            fence: fixtures::fence(),
            claimed: false,
            config: &DeliveryConfig::default(),
            context: fixtures::context(ownership),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn runs_that_are_cancelled_end_at_once_and_their_calls_are_lost() {
        let ownership = fixtures::owning_all();
        let mut executor = executor(&ownership);
        let registry = fixtures::registry_of(Registration::single("h", RecordTypes::all(), Hangs));
        let entry = Arc::clone(registry.entry("h", "t").unwrap());
        let mut run = Some(Run::new(entry, fixtures::lanes(&ownership, 2)));
        executor.start(|vacancy| if vacancy.transactional { None } else { run.take() });
        tokio::task::yield_now().await;
        let began = tokio::time::Instant::now();
        executor.cancel_all();
        let landed = loop {
            let Event::Landed(reports) = executor.next().await else { continue };
            let mut runs = reports.into_iter().flat_map(|report| report.runs);
            if let Some(run) = runs.find(|run| !run.lanes.is_empty()) {
                break run;
            }
        };
        let items = &landed.lanes[0].items;
        assert!(matches!((&items[0].1, &items[1].1), (Outcome::Lost, Outcome::Untried)));
        assert_eq!(began.elapsed(), Duration::ZERO, "no timeout was waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_of_the_store_is_made_in_a_task() {
        let mut executor = executor(&fixtures::owning_all());
        let (sender, called) = tokio::sync::oneshot::channel();
        executor.call(|_| async {
            let _ = sender.send(());
            Ok(())
        });
        assert!(matches!(executor.next().await, Event::TasksEnded { panicked: false }));
        called.await.unwrap();
    }
}
