//! The dispatcher: the one task that knows all stations. Events in, commands out.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    background::{Task, result_of},
    config::DeliveryConfig,
    execute::{Event, ExecContext, Executor, ExecutorSetup},
    fetch::{Answer, FetchResult, Planner, Step, fetch},
    lanes::{Lanes, Wishes},
    settle::{Evicted, SettleQueue, Settler, Written},
    shares::Shares,
    work::Batch,
};
use crate::{
    commit_wake::CommitWake,
    handler::Registry,
    instance::InstanceId,
    ownership::Ownership,
    record::Record,
    rules::pacing,
    store::{FenceRow, Store},
    telemetry::{Observers, Signal},
    vitals::ListenState,
};

/// Everything that delivery works with.
pub(crate) struct Setup {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) config: DeliveryConfig,
    pub(crate) ownership: Ownership,
    pub(crate) wake: CommitWake,
    pub(crate) listen_state: ListenState,
    pub(crate) observers: Observers,
    /// The first fence row of the settler (slot 0). The transactional slots have the rows that follow, and after them
    /// come the settler's others.
    pub(crate) fence: FenceRow,
    /// How long a call may hold a partition that is to be drained: the hand-over timeout less the write of
    /// the last outcome.
    pub(crate) longest_hold: Duration,
}

/// Why delivery ended without a shutdown.
#[derive(Debug)]
pub(crate) enum Ended {
    /// A fence row was closed: this instance has been evicted.
    Evicted,
    /// A task of the library panicked: what is in memory cannot be trusted any more.
    Broken,
}

/// Delivers the records of one instance. Dropping it cancels the handlers that run.
pub(crate) struct Dispatcher {
    /// Station 1: decides when to fetch, from which partitions, and how many records.
    planner: Planner,
    /// Station 2: the records in memory, lane by lane.
    lanes: Lanes,
    /// Station 3: the tasks that run.
    executor: Executor,
    /// Station 4: the outcomes that wait for a settle.
    queue: SettleQueue,
    /// Writes the outcomes of station 4. `None` while a settle is under way: its task has the settler.
    settler: Option<Settler>,
    /// Whether the lease held at the last check. Written by `ownership_changed`.
    leased: bool,
    /// What the runtime has given to this dispatcher. Never changes.
    outside: Outside,
}

/// What the runtime gives to a dispatcher.
struct Outside {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    ownership: Ownership,
    wake: CommitWake,
    observers: Observers,
    instance: InstanceId,
    longest_hold: Duration,
    max_in_flight: usize,
}

type Settled = (Settler, Batch, Result<Written, Evicted>);

impl Dispatcher {
    pub(crate) fn new(setup: Setup) -> Self {
        let Setup { store, registry, config, ownership, wake, listen_state, observers, fence, longest_hold } =
            setup;
        let instance = fence.instance;
        let context = ExecContext {
            states: registry.states.clone(),
            observers: observers.clone(),
            clock: ownership.clock(),
            targets: ownership.vitals().targets().clone(),
            longest_hold,
        };
        let executor =
            ExecutorSetup { store: Arc::clone(&store), fence, claimed: false, config: &config, context };
        let max_in_flight = config.max_in_flight;
        let spares = fence.slot + 1 + config.transactional_concurrency as u32;
        Self {
            planner: Planner::new(&config, instance, listen_state, Instant::now()),
            lanes: Lanes::new(config.max_crashes, Shares::new(registry.entries(), config.memory())),
            executor: Executor::new(executor),
            queue: SettleQueue::default(),
            settler: Some(
                Settler::new(Arc::clone(&store), observers.clone(), fence).with_spares_from(spares),
            ),
            leased: false,
            outside: Outside {
                store,
                registry,
                ownership,
                wake,
                observers,
                instance,
                longest_hold,
                max_in_flight,
            },
        }
    }

    /// Delivers until this instance is evicted or the future is dropped.
    pub(crate) async fn run(mut self) -> Ended {
        let mut fetching: Option<Task<FetchResult>> = None;
        let mut settling: Option<Task<Settled>> = None;
        loop {
            // The fetch starts before the runs: the database works while the handlers have the processor.
            fetching = fetching.or_else(|| self.start_fetch());
            self.start_runs();
            settling = settling.or_else(|| self.start_settle());
            let timer = self.next_timer();
            let (wake, changed) = (&self.outside.wake, self.outside.ownership.changed());
            tokio::select! {
                event = self.executor.next() => match event {
                    Event::Landed(reports) => {
                        let runs = reports.into_iter().flat_map(|report| report.runs);
                        runs.for_each(|run| self.lanes.land(run));
                        self.follow_wishes();
                    }
                    // The library catches panics of the user's code, so this panic is a fault of the library.
                    // The pause keeps the fault out of a hot loop. The flights of the task have reported
                    // their records.
                    Event::TasksEnded { panicked: true } => self.planner.pause(Instant::now()),
                    Event::TasksEnded { panicked: false } | Event::SlotFreed => {}
                    Event::Evicted => return Ended::Evicted,
                },
                fetched = result_of(&mut fetching) => {
                    fetching = None;
                    let Some(fetched) = fetched else { return Ended::Broken };
                    self.fetched(fetched);
                }
                settled = result_of(&mut settling) => {
                    settling = None;
                    let Some((settler, batch, result)) = settled else { return Ended::Broken };
                    self.settler = Some(settler);
                    match result {
                        Ok(written) => self.settled(batch, &written),
                        Err(Evicted) => return Ended::Evicted,
                    }
                }
                () = wake.nudged() => self.planner.want(),
                () = changed.nudged() => {
                    self.ownership_changed();
                    self.planner.want();
                }
                () = tokio::time::sleep_until(timer) => self.timer_fired(),
            }
        }
    }

    fn start_fetch(&mut self) -> Option<Task<FetchResult>> {
        let now = Instant::now();
        loop {
            let (lanes, in_memory) = (&self.lanes, self.lanes.in_memory());
            let of_handler = |number| lanes.of_handler(number);
            match self.planner.next(in_memory, of_handler, &self.outside.ownership, now) {
                Step::Wait => return None,
                Step::CutQueues(share) => {
                    self.cut_queues(share);
                }
                Step::Fetch(begin) => {
                    let fetch_of = self.lanes.begin_fetch();
                    let request = self.planner.begin(begin, fetch_of, &self.outside.ownership, now);
                    return Some(Task::start(fetch(Arc::clone(&self.outside.store), request)));
                }
            }
        }
    }

    /// Memory is full: cuts the long queues. If there are none, cuts the many short queues of one handler.
    fn cut_queues(&mut self, share: usize) {
        let cut = self.lanes.cut_queues(share);
        if cut.is_empty() {
            let handlers = self.outside.registry.entries().map(|entry| (entry.number, entry.id.as_str()));
            let lanes = &self.lanes;
            let (over, share) =
                self.planner.cut_handlers(handlers, |number| lanes.of_handler(number), Instant::now());
            over.into_iter().for_each(|number| self.lanes.cut_handler(number, share));
        }
        self.planner.queues_cut(cut);
        self.follow_wishes();
    }

    fn fetched(&mut self, mut result: FetchResult) {
        let now = Instant::now();
        if let Some(changes) = result.cluster_changes {
            self.outside.ownership.publish_changes(changes);
        }
        if let Some(error) = &result.error {
            self.outside.ownership.vitals().fetch_failed();
            self.outside.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
            self.planner.failed(&result.request, now);
            return self.lanes.end_fetch();
        }
        self.outside.ownership.vitals().fetch_answered();
        self.lanes.take_stops(&result.stops, result.request.seq, result.request.stops);
        self.lanes.take_suspicions(&result.suspicions, result.request.unread, now);
        self.planner.answered(&result, self.lanes.releasing(), now);
        let registry = &self.outside.registry;
        self.lanes.resume_unstopped(&result.stops, |handler| registry.knows(handler));
        let answer = Answer::from(&result);
        let records = std::mem::take(&mut result.records);
        if !records.is_empty() {
            self.outside.observers.emit(Signal::Fetched { records: records.len() });
        }
        let (before, _) = self.lanes.in_memory();
        match self.outside.ownership.lease_holds() {
            true => records.into_iter().for_each(|record| self.admit(record, result.request.began)),
            false => self.lanes.mark_missed(result.request.partitions()),
        }
        if answer.is_all_of_a_part() {
            self.lanes.fetched_all_of(result.request.partitions());
        }
        self.planner.admitted(&answer, self.lanes.in_memory().0 - before, now);
        self.lanes.end_fetch();
        self.follow_wishes();
    }

    /// Admits a record to its lane. If the stops of its partition are not known in this generation, the
    /// record gets no permit and is marked as missed.
    fn admit(&mut self, record: Arc<Record>, began: Duration) {
        let Outside { ownership, registry, .. } = &self.outside;
        let delivery = &record.delivery;
        let permit = ownership.permit(delivery.partition);
        let permit =
            permit.filter(|permit| self.planner.stops_are_read(delivery.partition, permit.generation()));
        let entry = registry.entry(&delivery.handler, &delivery.record_type);
        self.lanes.admit(record, began, permit, entry);
    }

    fn start_runs(&mut self) {
        // Without a lease, every run would end untried and its lane would be ready again at once.
        if self.outside.ownership.lease_holds() {
            let (lanes, now) = (&mut self.lanes, Instant::now());
            self.executor.start(|vacancy| lanes.next_run(vacancy, now));
        }
    }

    fn start_settle(&mut self) -> Option<Task<Settled>> {
        let mut settler = self.settler.take()?;
        if self.lanes.ask_for_steps(self.step_pause(), Instant::now()) {
            self.follow_wishes();
        }
        let Some(batch) = self.queue.next_batch() else {
            self.settler = Some(settler);
            return None;
        };
        self.planner.settle_begins();
        self.outside.ownership.vitals().settle_begins();
        Some(Task::start(async move {
            let result = settler.settle(&batch.settlements).await;
            (settler, batch, result)
        }))
    }

    /// The pause between two steps of releases. It depends on how many records of other partitions are in
    /// memory.
    fn step_pause(&self) -> Duration {
        let permits = |partition| self.outside.ownership.permits(partition);
        let of_releases: usize = self.lanes.releasing().iter().map(permits).sum();
        let of_others = self.lanes.in_memory().0.saturating_sub(of_releases);
        pacing::step_pause(of_others, self.outside.max_in_flight)
    }

    fn settled(&mut self, batch: Batch, Written { settled, refused }: &Written) {
        self.outside.ownership.vitals().settle_ends();
        self.planner.settle_ends(settled.number);
        let (batch, lanes) = self.queue.refuse(batch, refused, Instant::now());
        lanes.into_iter().for_each(|lane| self.lanes.refused(lane));
        self.lanes.settled(&batch, settled);
        self.follow_wishes();
    }

    /// Passes the wishes of the lanes on to the other stations.
    fn follow_wishes(&mut self) {
        let Wishes { writes, signals, tracks_ended, due_in, due, fetch, pause, missed, stops, released } =
            self.lanes.take_wishes();
        for mut write in writes {
            let of = |lane| self.outside.ownership.permit(self.lanes.partition_of(lane)?);
            write.origin.permit = write.origin.permit.or_else(|| of(write.origin.lane));
            // Without a permit, another instance may own the partition before this write is durable. The new
            // owner does the work.
            match write.origin.permit {
                Some(_) => self.queue.push(write),
                None => self.lanes.write_given_up(write),
            }
        }
        signals.into_iter().for_each(|signal| self.outside.observers.emit(signal));
        for record in tracks_ended {
            self.executor.call(|store| async move { store.end_tracking(record).await });
        }
        let now = Instant::now();
        due_in.into_iter().for_each(|pause| self.planner.due_in(pause, now));
        if due {
            self.planner.want_due();
        }
        if fetch {
            self.planner.want();
        }
        if pause {
            self.planner.pause(now);
        }
        self.planner.mark_missed(missed);
        self.planner.read_stops_again(stops);
        self.planner.released(released);
    }

    fn next_timer(&self) -> Instant {
        let now = Instant::now();
        let left = self.outside.ownership.lease_left();
        let lapse = (!left.is_zero()).then(|| now + left);
        // A step whose time has come waits for the end of the settle under way.
        let step = self.lanes.next_step().filter(|at| *at > now);
        // A run whose time has come waits for the end of another run.
        let start = self.lanes.next_start().filter(|at| *at > now);
        let others = [lapse, self.queue.next_retry(), step, start].into_iter().flatten();
        others.fold(self.planner.next_timer(now), Instant::min)
    }

    fn timer_fired(&mut self) {
        let now = Instant::now();
        if self.planner.fire(self.lanes.in_memory().0, now) {
            self.planner.read_stops_again(self.lanes.waiting_for_others());
            // If a partition was owned for as long as a call may take, without a crash, it is no longer
            // suspected.
            let calm = self.lanes.calm(self.outside.longest_hold, now);
            if !calm.is_empty() {
                let me = self.outside.instance;
                self.executor.call(|store| async move { store.calm(me, calm).await });
            }
        }
        self.ownership_changed();
    }

    fn ownership_changed(&mut self) {
        let ownership = &self.outside.ownership;
        let holds = ownership.lease_holds();
        if self.leased && !holds {
            self.outside.observers.emit(Signal::LeaseLapsed);
            self.executor.cancel_all();
        }
        self.leased = holds;
        self.planner.close(|partition| ownership.is_open(partition));
        self.lanes.close(|partition| ownership.is_open(partition));
        for write in self.queue.retry(Instant::now()) {
            self.lanes.write_given_up(write);
        }
        self.follow_wishes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::fixtures,
        instance::Generation,
        partition::{Partition, PartitionSet},
        rules::reading::Readings,
        store::{ErrorClass, StoreError},
    };

    /// The answer to a fetch that brings no records.
    async fn answer(dispatcher: &mut Dispatcher) -> FetchResult {
        dispatcher.planner.want();
        let mut fetching = dispatcher.start_fetch();
        result_of(&mut fetching).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_admitted_before_the_stops_of_its_generation_are_known() {
        let mut dispatcher = fixtures::dispatcher();
        dispatcher.admit(Arc::new(fixtures::record(1, "a")), Duration::ZERO);
        assert_eq!(dispatcher.lanes.in_memory().0, 0);
        let answer = answer(&mut dispatcher).await;
        dispatcher.fetched(answer);
        dispatcher.admit(Arc::new(fixtures::record(1, "a")), Duration::ZERO);
        assert_eq!(dispatcher.lanes.in_memory().0, 1);
    }

    /// Another instance owned the partition between the two generations, and may have stopped lanes there.
    #[tokio::test(start_paused = true)]
    async fn stops_that_were_read_in_an_earlier_generation_are_not_known() {
        let mut dispatcher = fixtures::dispatcher();
        let first = answer(&mut dispatcher).await;
        dispatcher.fetched(first);
        dispatcher.outside.ownership.grant(&[(Partition::of("a"), Generation(9))]);
        dispatcher.admit(Arc::new(fixtures::record(1, "a")), Duration::ZERO);
        assert_eq!(dispatcher.lanes.in_memory().0, 0);
        let second = answer(&mut dispatcher).await;
        dispatcher.fetched(second);
        dispatcher.admit(Arc::new(fixtures::record(1, "a")), Duration::ZERO);
        assert_eq!(dispatcher.lanes.in_memory().0, 1);
    }

    /// A list of stops says that the record which stopped a lane is gone. The instance that owns the partition now
    /// tells the lane to go on.
    #[tokio::test(start_paused = true)]
    async fn a_lane_of_a_partition_that_has_gone_is_not_told_to_go_on() {
        let of_a: PartitionSet = [Partition::of("a")].into_iter().collect();
        for (gone, writes) in [(PartitionSet::EMPTY, 1), (of_a, 0)] {
            let mut dispatcher = fixtures::dispatcher();
            let mut answer = answer(&mut dispatcher).await;
            answer.stops = vec![crate::record::Stop {
                lane: fixtures::record(1, "a").lane(),
                reason: crate::record::StopReason::Blocked,
                record: 1,
                record_exists: false,
                released_to: 0,
            }];
            dispatcher.outside.ownership.clear(gone);
            dispatcher.fetched(answer);
            assert_eq!(dispatcher.queue.next_batch().map_or(0, |batch| batch.len()), writes);
            assert_eq!(dispatcher.outside.ownership.permits_out(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_fetch_has_brought_is_run_and_settled() {
        let mut dispatcher = fixtures::dispatcher();
        let mut answer = answer(&mut dispatcher).await;
        let record = |id| Arc::new(fixtures::record(id, &format!("key-{}", id % 7)));
        answer.records = (1..=100).map(record).collect();
        dispatcher.fetched(answer);
        assert_eq!(dispatcher.lanes.in_memory().0, 100);
        let mut written = 0;
        while written < 100 {
            dispatcher.start_runs();
            let Event::Landed(reports) = dispatcher.executor.next().await else { continue };
            let runs = reports.into_iter().flat_map(|report| report.runs);
            runs.for_each(|run| dispatcher.lanes.land(run));
            dispatcher.follow_wishes();
            let Some(batch) = dispatcher.queue.next_batch() else { continue };
            written += batch.len();
            let settled = crate::store::Settled { applied: batch.len(), ..Default::default() };
            dispatcher.settled(batch, &Written { settled, refused: Vec::new() });
        }
        assert_eq!(dispatcher.lanes.in_memory(), (0, 0));
        assert_eq!(dispatcher.outside.ownership.permits_out(), 0);
    }

    /// After a failure, the next connection may lead to another database, so the known ids do not count.
    #[tokio::test(start_paused = true)]
    async fn after_a_fetch_that_failed_the_head_is_asked_for_again() {
        let mut dispatcher = fixtures::dispatcher();
        let first = answer(&mut dispatcher).await;
        dispatcher.fetched(first);
        let known = answer(&mut dispatcher).await;
        let error = StoreError::new("scan by id", ErrorClass::Reconnect, "gone");
        dispatcher.fetched(FetchResult { error: Some(error), ..known });
        assert!(dispatcher.start_fetch().is_none(), "not at once");
        tokio::time::advance(crate::delivery::ERROR_PAUSE).await;
        let Step::Fetch(begin) =
            dispatcher.planner.next((0, 0), |_| 0, &dispatcher.outside.ownership, Instant::now())
        else {
            panic!("it is to be fetched again")
        };
        let request =
            dispatcher.planner.begin(begin, (9, Vec::new()), &dispatcher.outside.ownership, Instant::now());
        let fresh = Readings::default().begin(PartitionSet::ALL, PartitionSet::EMPTY, false);
        assert_eq!(request.reading, fresh);
    }
}
