//! The pipeline: the one task that keeps the books of delivery.

use std::{
    collections::BTreeSet,
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use super::{
    DeliveryConfig,
    attempt::{Surroundings, roll},
    fetcher::{Look, Seen, look},
    lanes::{Item, Lanes},
    run::{Finished, FinishedLane, Outcome},
    settler::{Evicted, Settler},
    stops::StopState,
    transaction::GuardPool,
};
use crate::{
    handler::Registry,
    instance::{Generation, InstanceId},
    ownership::{Ownership, Permit},
    partition::{PARTITION_COUNT, Partition, PartitionSet},
    record::{AfterFailure, Change, Lane, Record, Settlement, StopReason},
    rules::{
        lifecycle::lane_goes_on,
        pacing::{self, FetchLimits},
    },
    store::{Guard, SETTLER_SLOT, Settled, Store},
    telemetry::{Observers, Signal},
    wake::Wake,
};

/// Records of one settle at most.
const SETTLE_LIMIT: usize = 5_000;
/// Added to the time of a retry, so that the database agrees that it has come.
const DUE_SLACK: Duration = Duration::from_millis(5);
/// Times of retries that are remembered; beyond them the poll interval decides.
const DUE_TIMES: usize = 1_000;
/// The pause after a look that failed.
const ERROR_PAUSE: Duration = Duration::from_millis(200);

/// Everything a pipeline works with.
pub(crate) struct Setup {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) config: DeliveryConfig,
    pub(crate) ownership: Ownership,
    pub(crate) wake: Wake,
    pub(crate) observers: Observers,
    pub(crate) instance: InstanceId,
}

/// Why a pipeline came to its end by itself.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Its guard was closed: this instance has been evicted.
    Evicted,
}

/// An outcome on its way to the database. The permit goes when it is durable.
struct Pending {
    settlement: Settlement,
    lane: Lane,
    _permit: Option<Permit>,
}

type Task<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;
type SettleDone = (Settler, Vec<Pending>, Result<Settled, Evicted>);

/// The bookkeeper of one instance's deliveries. Dropping it cancels the handlers that run.
pub(crate) struct Pipeline {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    config: DeliveryConfig,
    ownership: Ownership,
    wake: Wake,
    observers: Observers,
    around: Surroundings,
    guards: Arc<GuardPool>,
    evicted: Wake,
    lanes: Lanes,
    tasks: JoinSet<Finished>,
    /// Cancelled runs are still ending: nothing starts before they have.
    clearing: bool,
    outcomes: Vec<Pending>,
    settler: Option<Settler>,
    /// The generation for which the stops of a partition were read.
    loaded: [Generation; PARTITION_COUNT],
    turn: u8,
    wanted: bool,
    due_wanted: bool,
    refresh_wanted: bool,
    not_before: Instant,
    next_poll: Instant,
    due_times: BTreeSet<Instant>,
    mean_bytes: usize,
    instance: InstanceId,
    polls: u32,
}

impl Pipeline {
    pub(crate) fn new(setup: Setup) -> Self {
        let Setup { store, registry, config, ownership, wake, observers, instance } = setup;
        let guard = Guard { instance, slot: SETTLER_SLOT, counter: 0 };
        let evicted = Wake::default();
        let size = config.transactional_concurrency;
        let guards =
            GuardPool::new(Arc::clone(&store), observers.clone(), instance, size, evicted.clone());
        let around = Surroundings {
            states: registry.states.clone(),
            observers: observers.clone(),
            clock: ownership.clock(),
        };
        let now = Instant::now();
        Self {
            settler: Some(Settler::new(Arc::clone(&store), observers.clone(), guard)),
            guards: Arc::new(guards),
            store,
            registry,
            config,
            ownership,
            wake,
            observers,
            around,
            evicted,
            lanes: Lanes::default(),
            tasks: JoinSet::new(),
            clearing: false,
            outcomes: Vec::new(),
            loaded: [Generation::default(); PARTITION_COUNT],
            turn: 0,
            wanted: true,
            due_wanted: true,
            refresh_wanted: false,
            not_before: now,
            next_poll: now,
            due_times: BTreeSet::new(),
            mean_bytes: 1024,
            instance,
            polls: 0,
        }
    }

    /// Delivers until this instance is evicted or the future is dropped.
    pub(crate) async fn run(mut self) -> Ended {
        let mut looking: Task<Seen> = None;
        let mut settling: Task<SettleDone> = None;
        loop {
            self.start_runs();
            looking = looking.or_else(|| self.start_look());
            settling = settling.or_else(|| self.start_settle());
            let timer = self.next_timer();
            let (ownership, wake, evicted) = (self.ownership.clone(), self.wake.clone(), self.evicted.clone());
            tokio::select! {
                Some(ended) = self.tasks.join_next() => self.take_in_runs(ended),
                seen = poll_task(&mut looking) => {
                    looking = None;
                    self.take_in(seen);
                }
                (settler, written, result) = poll_task(&mut settling) => {
                    settling = None;
                    self.settler = Some(settler);
                    match result {
                        Ok(settled) => self.settled(written, settled),
                        Err(Evicted) => return Ended::Evicted,
                    }
                }
                () = wake.nudged() => self.wanted = true,
                () = ownership.changed().nudged() => self.ownership_changed(),
                () = evicted.nudged() => return Ended::Evicted,
                () = tokio::time::sleep_until(timer) => self.timer_fired(),
            }
        }
    }

    // ── looking ──────────────────────────────────────────────────────────────────────────────

    fn start_look(&mut self) -> Task<Seen> {
        if !(self.wanted || self.due_wanted) || self.clearing || Instant::now() < self.not_before {
            return None;
        }
        let owned = self.ownership.owned();
        let limits = FetchLimits {
            batch_size: self.config.batch_size,
            max_in_flight: self.config.max_in_flight,
            max_in_flight_bytes: self.config.max_in_flight_bytes,
        };
        let (records, bytes) = (self.lanes.in_flight(), self.lanes.in_flight_bytes());
        let limit = pacing::fetch_size(limits, records, bytes, self.mean_bytes);
        // A look for a few places costs as much as one for many: wait until half a batch has room.
        if owned.is_empty() || limit == 0 || (records > 0 && limit < self.config.batch_size / 2) {
            return None;
        }
        let stops = self.stops_to_read(owned);
        let generations = stops.iter().filter_map(|p| Some((p, self.ownership.generation(p)?))).collect();
        let (epoch, skip) = self.lanes.begin_fetch();
        let turn = owned.iter().filter(|partition| partition.number() >= self.turn);
        let turn = turn.chain(owned.iter().filter(|partition| partition.number() < self.turn)).collect();
        let wanted = Look { epoch, turn, stops, generations, due: self.due_wanted, skip, limit };
        (self.wanted, self.due_wanted, self.refresh_wanted) = (false, false, false);
        Some(Box::pin(look(Arc::clone(&self.store), wanted)))
    }

    fn stops_to_read(&self, owned: PartitionSet) -> PartitionSet {
        let unread = |partition: &Partition| {
            self.ownership.generation(*partition) != Some(self.loaded[partition.index()])
        };
        owned.iter().filter(|partition| self.refresh_wanted || unread(partition)).collect()
    }

    fn take_in(&mut self, seen: Seen) {
        let Seen { look, stops, records, more, error } = seen;
        if let Some(error) = error {
            self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
            (self.wanted, self.due_wanted) = (true, self.due_wanted || look.due);
            self.not_before = Instant::now() + ERROR_PAUSE;
            self.lanes.end_fetch();
            return;
        }
        self.lanes.reconcile(&stops, look.epoch, |lane| look.stops.contains(lane.partition));
        for (partition, generation) in look.generations {
            self.loaded[partition.index()] = generation;
        }
        self.resume_what_nothing_stops(&stops);
        if let Some(last) = records.last() {
            self.turn = last.delivery.partition.number().wrapping_add(1);
            let bytes: usize = records.iter().map(|record| record.payload.len()).sum();
            self.mean_bytes = (self.mean_bytes + bytes / records.len()) / 2 + 1;
            self.observers.emit(Signal::Fetched { records: records.len() });
        }
        for record in records {
            self.sort_in(record);
        }
        self.wanted |= more;
        self.lanes.end_fetch();
    }

    /// Stops whose record is gone, or whose handler this build has, hold nothing back any more.
    fn resume_what_nothing_stops(&mut self, stops: &[crate::record::Stop]) {
        for stop in stops {
            let adopted = stop.reason == StopReason::Unroutable && self.registry.knows(&stop.lane.handler);
            let still = self.lanes.stop_of(&stop.lane).is_some_and(|state| state.record == stop.record);
            if still && (adopted || !stop.record_exists) {
                let permit = self.ownership.permit(stop.lane.partition);
                self.write(stop.record, 0, Change::Resume, stop.lane.clone(), permit);
            }
        }
    }

    fn sort_in(&mut self, mut record: Record) {
        let id = record.delivery.id;
        let partition = record.delivery.partition;
        let lane = record.lane();
        if self.lanes.knows(id) || self.lanes.is_tainted(&lane) {
            return;
        }
        // Without a permit the record is left where it is; so is all that follows in its partition.
        let Some(permit) = self.ownership.permit(partition) else { return };
        record.delivery.generation = permit.generation();
        if permit.generation() != self.loaded[partition.index()] {
            return;
        }
        let failures = record.failures();
        let belongs = Partition::of(&record.delivery.key);
        if belongs != partition {
            self.lanes.note(&record);
            self.observers.emit(Signal::Quarantined { record: id, partition, belongs });
            let error = format!("stood in partition {partition}, but its key belongs to {belongs}");
            let change = Change::Fail { error, lane: AfterFailure::Continue };
            return self.write(id, failures, change, lane, Some(permit));
        }
        let stop = self.lanes.stop_of(&lane);
        let stops_lane = stop.is_some_and(|stop| stop.record == id);
        if let Some(stop) = stop.filter(|_| !stops_lane) {
            self.lanes.note(&record);
            return self.write(id, failures, Change::Hold { behind: stop.record }, lane, Some(permit));
        }
        match self.registry.entry(&record.delivery.handler, &record.delivery.record_type).cloned() {
            Some(entry) => self.lanes.push(lane, &entry, Item { record, permit, stops_lane }),
            None => {
                self.lanes.note(&record);
                let record_type = record.delivery.record_type;
                self.observers.emit(Signal::Unroutable { record: id, lane: lane.clone(), record_type });
                self.stop(&lane, id, StopReason::Unroutable);
                self.write(id, failures, Change::Unroutable, lane, Some(permit));
            }
        }
    }

    // ── running ──────────────────────────────────────────────────────────────────────────────

    fn start_runs(&mut self) {
        while !self.clearing && self.lanes.runs() < self.config.concurrency {
            let Some(run) = self.lanes.next_run() else { break };
            self.tasks.spawn(run.execute(self.around.clone(), Arc::clone(&self.guards)));
        }
    }

    fn take_in_runs(&mut self, ended: Result<Finished, tokio::task::JoinError>) {
        self.take_in_run(ended);
        // Those that have ended meanwhile come along: one settle for all of them.
        while let Some(ended) = self.tasks.try_join_next() {
            self.take_in_run(ended);
        }
        if self.clearing && self.tasks.is_empty() {
            self.clearing = false;
            self.lanes.abandon_runs();
            self.wanted = true;
        }
    }

    fn take_in_run(&mut self, ended: Result<Finished, tokio::task::JoinError>) {
        match ended {
            Ok(finished) => self.finished(finished),
            Err(error) if error.is_cancelled() => {}
            // Handlers are caught; a panic around them leaves books that cannot be trusted.
            Err(_) => {
                self.tasks.abort_all();
                self.clearing = true;
            }
        }
    }

    fn finished(&mut self, Finished { lanes }: Finished) {
        self.lanes.end_run();
        for FinishedLane { lane, items } in lanes {
            let mut untried = Vec::new();
            let mut lost = false;
            for (item, outcome) in items {
                match outcome {
                    Outcome::Write(change) => self.write_outcome(item, change, &lane),
                    Outcome::Written => {
                        self.lanes.forget(item.record.delivery.id);
                        if item.stops_lane {
                            self.lanes.resume(&lane);
                            self.wanted = true;
                        }
                    }
                    Outcome::Untried => untried.push(item),
                    Outcome::Gone => {
                        self.lanes.forget(item.record.delivery.id);
                        lost = true;
                    }
                    Outcome::Aborted(error) => {
                        self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
                        self.not_before = Instant::now() + ERROR_PAUSE;
                        self.lanes.forget(item.record.delivery.id);
                        lost = true;
                    }
                }
            }
            self.take_back(&lane, untried, lost);
            self.lanes.end_lane(&lane);
        }
    }

    fn write_outcome(&mut self, item: Item, change: Change, lane: &Lane) {
        let id = item.record.delivery.id;
        let failures = item.record.failures();
        if !lane_goes_on(&change) {
            let reason = match change {
                Change::Retry { .. } => StopReason::Retrying,
                _ => StopReason::Blocked,
            };
            self.stop(lane, id, reason);
        }
        self.write(id, failures, change, lane.clone(), Some(item.permit));
    }

    /// Records that were not tried keep their place, unless their lane stands still or is given up.
    fn take_back(&mut self, lane: &Lane, untried: Vec<Item>, lost: bool) {
        match self.lanes.stop_of(lane) {
            Some(stop) => {
                for item in untried {
                    if item.record.delivery.id == stop.record {
                        self.lanes.forget(stop.record);
                        self.due_wanted = true;
                    } else {
                        self.hold(item, stop.record, lane);
                    }
                }
            }
            None if lost || !self.ownership.is_open(lane.partition) => {
                self.lanes.put_back(lane, untried);
                self.lanes.abandon(lane);
                self.wanted = true;
            }
            None => self.lanes.put_back(lane, untried),
        }
    }

    /// The lane stands still: what is queued behind is held.
    fn stop(&mut self, lane: &Lane, record: i64, reason: StopReason) {
        let queued = self.lanes.stop(lane, StopState { record, reason, durable_since: None });
        for item in queued {
            self.hold(item, record, lane);
        }
    }

    fn hold(&mut self, item: Item, behind: i64, lane: &Lane) {
        let (id, failures) = (item.record.delivery.id, item.record.failures());
        self.write(id, failures, Change::Hold { behind }, lane.clone(), Some(item.permit));
    }

    // ── settling ─────────────────────────────────────────────────────────────────────────────

    fn write(&mut self, id: i64, failures: u32, change: Change, lane: Lane, permit: Option<Permit>) {
        self.lanes.writing(id);
        self.outcomes.push(Pending { settlement: Settlement { id, failures, change }, lane, _permit: permit });
    }

    fn start_settle(&mut self) -> Task<SettleDone> {
        if self.outcomes.is_empty() {
            return None;
        }
        let mut settler = self.settler.take()?;
        let most = self.outcomes.len().min(SETTLE_LIMIT);
        let batch: Vec<Pending> = self.outcomes.drain(..most).collect();
        Some(Box::pin(async move {
            let settlements: Vec<Settlement> = batch.iter().map(|pending| pending.settlement.clone()).collect();
            let result = settler.settle(&settlements).await;
            (settler, batch, result)
        }))
    }

    fn settled(&mut self, written: Vec<Pending>, settled: Settled) {
        let mut holds = 0;
        for Pending { settlement, lane, _permit } in &written {
            self.lanes.forget(settlement.id);
            match &settlement.change {
                Change::Complete => {}
                Change::CompleteAndResume | Change::Resume => self.resume(lane),
                Change::Fail { lane: AfterFailure::Continue, .. } => self.resume(lane),
                Change::Retry { delay, stop, .. } => {
                    if *stop {
                        self.lanes.stop_is_durable(lane);
                    }
                    self.due_times.insert(Instant::now() + *delay + DUE_SLACK);
                    if self.due_times.len() > DUE_TIMES {
                        self.due_times.pop_last();
                    }
                }
                Change::Fail { lane: AfterFailure::Block, .. } | Change::Unroutable => {
                    self.lanes.stop_is_durable(lane);
                }
                Change::Hold { .. } => {
                    // Out of memory again: a fetch under way may bring later ones without it.
                    self.lanes.taint(lane);
                    holds += 1;
                }
            }
        }
        if settled.held < holds {
            // A lane was released meanwhile; its records are pending and come again.
            (self.refresh_wanted, self.wanted) = (true, true);
        }
    }

    fn resume(&mut self, lane: &Lane) {
        if self.lanes.stop_of(lane).is_some() {
            self.lanes.resume(lane);
            self.wanted = true;
        }
    }

    // ── time and ownership ───────────────────────────────────────────────────────────────────

    fn next_timer(&self) -> Instant {
        let mut next = self.next_poll;
        if let Some(due) = self.due_times.first() {
            next = next.min(*due);
        }
        if self.wanted && self.not_before > Instant::now() {
            next = next.min(self.not_before);
        }
        let left = self.ownership.lease_left();
        if !left.is_zero() && !self.clearing {
            next = next.min(Instant::now() + left);
        }
        next
    }

    fn timer_fired(&mut self) {
        let now = Instant::now();
        while self.due_times.first().is_some_and(|due| *due <= now) {
            self.due_times.pop_first();
            self.due_wanted = true;
        }
        if self.next_poll <= now {
            self.polls += 1;
            let roll = roll(self.instance.as_uuid().as_u128() as i64, self.polls);
            self.next_poll = now + pacing::pause(self.config.poll_interval, roll);
            (self.wanted, self.due_wanted) = (true, true);
            self.refresh_wanted = self.lanes.any_released_from_outside();
        }
        self.ownership_changed();
    }

    fn ownership_changed(&mut self) {
        if !self.ownership.lease_holds() && !self.tasks.is_empty() && !self.clearing {
            self.observers.emit(Signal::LeaseLapsed);
            self.tasks.abort_all();
            self.clearing = true;
        }
        let ownership = self.ownership.clone();
        self.lanes.abandon_where(|lane| !ownership.is_open(lane.partition));
        self.wanted = true;
    }
}

async fn poll_task<T>(task: &mut Task<T>) -> T {
    match task {
        Some(task) => task.await,
        None => pending().await,
    }
}
