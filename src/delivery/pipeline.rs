//! The pipeline: the one task that keeps the books of delivery.

use std::{
    collections::BTreeSet,
    future::{Future, pending},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use super::{
    DeliveryConfig,
    aside::Aside,
    attempt::{Surroundings, roll},
    fetcher::Seen,
    flight::Report,
    lanes::Lanes,
    listening::Listening,
    noted::tell,
    outcomes::Pending,
    releases::Releases,
    settler::{Evicted, Settler, Written},
    suspects::Suspects,
    transaction::GuardPool,
};
use crate::{
    handler::Registry,
    instance::{Generation, InstanceId},
    notifications::Hearing,
    ownership::Ownership,
    partition::{PARTITION_COUNT, PartitionSet},
    record::RecordId,
    rules::{
        frontier::{Frontier, Server},
        pacing,
    },
    store::{Guard, SETTLER_SLOT, Store},
    telemetry::{Observers, Signal},
    wake::Wake,
};

/// Reports that are taken in at once.
const REPORTS: usize = 1024;
/// While there is work, the head is asked for once in so many polls.
const POLLS_A_PROBE: u32 = 5;

/// Everything a pipeline works with.
pub(crate) struct Setup {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) config: DeliveryConfig,
    pub(crate) ownership: Ownership,
    pub(crate) wake: Wake,
    pub(crate) hearing: Hearing,
    pub(crate) observers: Observers,
    pub(crate) instance: InstanceId,
    /// How long others wait for a partition, less the write of the last outcome.
    pub(crate) longest_hold: Duration,
}

/// Why a pipeline came to its end by itself.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Its guard was closed: this instance has been evicted.
    Evicted,
    /// A task of its own panicked: the books cannot be trusted any more.
    Broken,
}

/// Work on a task of its own, so that decoding and encoding do not hold up the books. Dropping it
/// cancels it.
pub(super) struct Task<T>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    pub(super) fn start(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) type SettleDone = (Settler, Vec<Pending>, Result<Written, Evicted>);

/// The bookkeeper of one instance's deliveries. Dropping it cancels the handlers that run.
pub(crate) struct Pipeline {
    pub(super) store: Arc<dyn Store>,
    pub(super) registry: Arc<Registry>,
    pub(super) config: DeliveryConfig,
    pub(super) ownership: Ownership,
    pub(super) wake: Wake,
    pub(super) observers: Observers,
    pub(super) around: Arc<Surroundings>,
    pub(super) evicted: Wake,
    pub(super) guards: Arc<GuardPool>,
    /// Nudged when a guard is free again.
    pub(super) freed: Wake,
    pub(super) lanes: Lanes,
    pub(super) releases: Releases,
    pub(super) suspects: Suspects,
    /// Partitions that are looked at by themselves.
    pub(super) crowded: PartitionSet,
    /// Partitions whose last look by themselves brought nothing that could be taken; until there is news.
    pub(super) barren: PartitionSet,
    /// Since when memory has had no room for a look.
    pub(super) full_since: Option<Instant>,
    pub(super) tasks: JoinSet<()>,
    /// Where runs report that they have ended.
    pub(super) done: mpsc::UnboundedSender<Report>,
    pub(super) reports: mpsc::UnboundedReceiver<Report>,
    /// What a run takes of the processor, lately.
    pub(super) mean_run: Duration,
    /// Whether the lease held when it was last looked at.
    pub(super) leased: bool,
    pub(super) frontier: Frontier,
    /// The number of the last settle and its server, and the last id that was known before it.
    pub(super) wrote: Option<(RecordId, (i64, Server))>,
    /// The last id that was known when the settle under way began.
    pub(super) settle_began_at: RecordId,
    pub(super) outcomes: Vec<Pending>,
    /// Outcomes that the database refuses.
    pub(super) aside: Vec<Aside>,
    pub(super) settler: Option<Settler>,
    /// The generation for which the stops of a partition were read.
    pub(super) loaded: [Generation; PARTITION_COUNT],
    pub(super) turn: u8,
    pub(super) wanted: bool,
    /// Something was heard of since the last look.
    pub(super) news: bool,
    pub(super) due_wanted: bool,
    pub(super) listening: Listening,
    /// Partitions whose stopped lanes are to be read again: somebody else may have released one.
    pub(super) refresh: PartitionSet,
    /// Crowded partitions with a lane that was released: they are looked at however full they are.
    pub(super) released: PartitionSet,
    pub(super) not_before: Instant,
    pub(super) next_poll: Instant,
    pub(super) due_times: BTreeSet<Instant>,
    pub(super) mean_bytes: usize,
    pub(super) instance: InstanceId,
    pub(super) polls: u32,
    /// How long others wait for a partition.
    longest_hold: Duration,
}

impl Pipeline {
    pub(crate) fn new(setup: Setup) -> Self {
        let Setup { store, registry, config, ownership, wake, hearing, observers, instance, longest_hold } =
            setup;
        let guard = Guard { instance, slot: SETTLER_SLOT, counter: 0 };
        let (freed, evicted) = (Wake::default(), Wake::default());
        let size = config.transactional_concurrency;
        let (guarded, told) = (Arc::clone(&store), observers.clone());
        let guards = GuardPool::new(guarded, told, instance, size, freed.clone(), evicted.clone());
        let around = Arc::new(Surroundings {
            states: registry.states.clone(),
            observers: observers.clone(),
            clock: ownership.clock(),
            longest_hold,
        });
        let suspects = Suspects::new(config.max_crashes);
        let now = Instant::now();
        let (done, reports) = mpsc::unbounded_channel();
        Self {
            done,
            reports,
            mean_run: Duration::from_millis(1),
            settler: Some(Settler::new(Arc::clone(&store), observers.clone(), guard)),
            store,
            registry,
            config,
            ownership,
            wake,
            observers,
            around,
            evicted,
            guards: Arc::new(guards),
            freed,
            lanes: Lanes::default(),
            releases: Releases::default(),
            suspects,
            longest_hold,
            crowded: PartitionSet::EMPTY,
            barren: PartitionSet::EMPTY,
            full_since: None,
            tasks: JoinSet::new(),
            leased: false,
            frontier: Frontier::default(),
            wrote: None,
            settle_began_at: 0,
            outcomes: Vec::new(),
            aside: Vec::new(),
            loaded: [Generation::default(); PARTITION_COUNT],
            turn: 0,
            wanted: true,
            news: true,
            due_wanted: true,
            listening: Listening::new(hearing),
            refresh: PartitionSet::EMPTY,
            released: PartitionSet::EMPTY,
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
        let mut looking: Option<Task<Seen>> = None;
        let mut settling: Option<Task<SettleDone>> = None;
        let mut ended = Vec::new();
        loop {
            // The question is on its way before the handlers have the processor.
            looking = looking.or_else(|| self.start_look());
            self.start_runs();
            settling = settling.or_else(|| self.start_settle());
            let timer = self.next_timer();
            let (ownership, wake) = (self.ownership.clone(), self.wake.clone());
            let (freed, evicted) = (self.freed.clone(), self.evicted.clone());
            tokio::select! {
                count = self.reports.recv_many(&mut ended, REPORTS) => {
                    debug_assert!(count > 0, "the sender is kept beside the receiver");
                    ended.drain(..).for_each(|report| self.take_in_report(report));
                }
                Some(ended) = self.tasks.join_next() => self.task_ended(ended),
                seen = ended_task(&mut looking) => {
                    looking = None;
                    let Some(seen) = seen else { return Ended::Broken };
                    self.take_in(seen);
                }
                done = ended_task(&mut settling) => {
                    settling = None;
                    let Some((settler, written, result)) = done else { return Ended::Broken };
                    self.settler = Some(settler);
                    match result {
                        Ok(Written { settled, refused }) => {
                            let written = self.set_aside(written, &refused);
                            self.settled(written, settled);
                        }
                        Err(Evicted) => return Ended::Evicted,
                    }
                }
                () = wake.nudged() => self.want(),
                () = freed.nudged() => {}
                () = ownership.changed().nudged() => self.ownership_changed(),
                () = evicted.nudged() => return Ended::Evicted,
                () = self.listening.is_due() => self.wanted = true,
                () = tokio::time::sleep_until(timer) => self.timer_fired(),
            }
        }
    }

    fn next_timer(&self) -> Instant {
        let mut next = self.next_poll;
        if let Some(due) = self.due_times.first() {
            next = next.min(*due);
        }
        if let Some(at) = self.next_aside() {
            next = next.min(at);
        }
        if self.wanted && self.not_before > Instant::now() {
            next = next.min(self.not_before);
        }
        let left = self.ownership.lease_left();
        if !left.is_zero() {
            next = next.min(Instant::now() + left);
        }
        next
    }

    fn timer_fired(&mut self) {
        let now = Instant::now();
        let asked = self.listening.is_asked();
        while self.due_times.first().is_some_and(|due| *due <= now) {
            self.due_times.pop_first();
            self.due_wanted = true;
        }
        if self.next_poll <= now {
            self.polls += 1;
            let roll = roll(self.instance.as_uuid().as_u128() as i64, self.polls);
            self.next_poll = now + pacing::pause(self.config.poll_interval, roll);
            self.due_wanted = true;
            self.look_behind();
            self.calm_down();
            self.refresh = self.refresh.union(self.lanes.waiting_for_others());
        }
        self.ownership_changed();
        self.listening.asked_only(asked);
    }

    /// Another hand can make a record pending behind the frontier: it was mended, or inserted with an
    /// id of its own. Nothing is told of it, so it is looked for from time to time.
    fn look_behind(&mut self) {
        match self.lanes.in_flight() {
            0 => self.frontier.look_apart(),
            _ if self.polls.is_multiple_of(POLLS_A_PROBE) => self.lanes.leave_behind(),
            _ => {}
        }
    }

    /// Partitions that were owned without a crash for as long as a call may take are suspected no more.
    fn calm_down(&mut self) {
        let calm = self.suspects.calm(self.longest_hold);
        if !calm.is_empty() {
            let (store, me, around) = (Arc::clone(&self.store), self.instance, Arc::clone(&self.around));
            self.tasks.spawn(async move {
                tell(store.calm(me, calm), &around).await;
            });
        }
    }

    fn ownership_changed(&mut self) {
        let holds = self.ownership.lease_holds();
        if self.leased && !holds {
            self.observers.emit(Signal::LeaseLapsed);
            // Each reports as it ends. One that blocks its thread keeps its own lane waiting, no other.
            self.tasks.abort_all();
        }
        self.leased = holds;
        let ownership = self.ownership.clone();
        self.crowded = self.crowded.iter().filter(|partition| ownership.is_open(*partition)).collect();
        self.suspects.end_where(|partition| !ownership.is_open(partition));
        self.releases.end_where(|lane| !ownership.is_open(lane.partition));
        self.lanes.abandon_where(|lane| !ownership.is_open(lane.partition));
        self.take_up_aside();
        self.want();
    }
}

/// The result of a task, `None` if it panicked; waits for ever while there is none.
async fn ended_task<T>(task: &mut Option<Task<T>>) -> Option<T> {
    match task {
        Some(Task(handle)) => handle.await.ok(),
        None => pending().await,
    }
}
