//! How lanes stop, go on and wait for their writes, driven as the dispatcher does.

mod cuts;
mod releases;
mod runs;
mod stops;

use super::*;
use crate::{
    delivery::fixtures,
    handler::{BatchCall, BatchResults, BoxFuture, Form, States},
    instance::{Generation, InstanceId},
    ownership::Ownership,
    rules::crashes::Care,
    store::{FenceRow, Transacted, TransactionalRun, Work},
};

/// The lanes of an instance that owns all partitions, and the writes that they have asked for.
struct Stage {
    ownership: Ownership,
    entry: Arc<Entry>,
    lanes: Lanes,
    writes: Vec<Write>,
}

impl Stage {
    fn new() -> Self {
        let (ownership, entry) = (fixtures::owning_all(), fixtures::entry());
        Self { ownership, entry, lanes: Lanes::new(3, fixtures::shares()), writes: Vec::new() }
    }

    /// A stage with a handler of this form.
    fn of(form: Form) -> Self {
        let mut stage = Self::new();
        Arc::get_mut(&mut stage.entry).unwrap().form = form;
        stage
    }

    /// The records of the next run by lane, if a lane is ready. The run goes on.
    fn begin_run(&mut self, transactional: bool) -> Vec<Vec<RecordId>> {
        let vacancy = if transactional { fixtures::TRANSACTIONAL } else { fixtures::PLAIN };
        let run = self.lanes.next_run(vacancy, Instant::now());
        let lanes = run.into_iter().flat_map(|run| run.lanes);
        lanes.map(|lane| lane.items.iter().map(|(item, _)| item.id()).collect()).collect()
    }

    /// Earlier owners of the partition of `key` have crashed so often, and so often during calls of this record.
    fn suspect(&mut self, key: &str, (partition_crashes, record, crashes): (u32, RecordId, u32)) {
        let partition = Partition::of(key);
        let of = |record, crashes| Suspicion { partition, record, crashes };
        let list = [of(None, partition_crashes), of(Some(record), crashes)];
        self.lanes.take_suspicions(&list, [partition].into_iter().collect(), Instant::now());
    }

    fn fetch(&mut self, id: RecordId, key: &str) {
        let record = fixtures::record(id, key);
        let permit = self.ownership.permit(record.delivery.partition);
        self.lanes.admit(Arc::new(record), Duration::ZERO, permit, Some(&self.entry));
    }

    /// Runs all ready lanes. `end` gives the outcome of each record.
    fn run(&mut self, end: impl Fn(RecordId) -> Outcome) {
        while let Some(mut run) = self.lanes.next_run(fixtures::PLAIN, Instant::now()) {
            for lane in &mut run.lanes {
                while let Some(id) = lane.next().map(Item::id) {
                    lane.end(end(id));
                }
                lane.over = true;
            }
            self.lanes.land(Run { goes_on: false, ..run });
        }
    }

    /// The wishes without the writes, which the stage keeps.
    fn wishes(&mut self) -> Wishes {
        let mut wishes = self.lanes.take_wishes();
        self.writes.append(&mut wishes.writes);
        wishes
    }

    /// Settles all waiting writes. `refused_holds` of the holds match no row.
    fn settle(&mut self, refused_holds: usize) {
        self.wishes();
        let mut batch = Batch::default();
        self.writes.drain(..).for_each(|write| batch.push(write));
        let is_hold = |settlement: &&Settlement| matches!(settlement.change, Change::Hold { .. });
        let holds = batch.settlements.iter().filter(is_hold).count();
        let of_lanes = batch.settlements.iter().filter(|settlement| settlement.change.is_of_lane()).count();
        let applied = batch.len() - holds - of_lanes;
        let settled = Settled { applied, held: holds - refused_holds, ..Settled::default() };
        self.lanes.settled(&batch, &settled);
    }

    /// The waiting writes, by record id.
    fn waiting(&mut self) -> Vec<(RecordId, &'static str)> {
        self.wishes();
        let word = |change: &Change| match change {
            Change::Complete => "complete",
            Change::Retry { .. } => "retry",
            Change::Hold { .. } => "hold",
            Change::Release => "release",
            _ => "other",
        };
        let words = self.writes.iter().map(|write| (write.settlement.id, word(&write.settlement.change)));
        words.collect()
    }

    /// Takes over a list of stops, read by a fetch of its own.
    fn list(&mut self, stops: &[Stop]) {
        let (seq, _) = self.lanes.begin_fetch();
        self.lanes.take_stops(stops, seq, PartitionSet::ALL);
        self.lanes.end_fetch();
    }

    fn is_empty(&self) -> bool {
        self.lanes.0.table.len() == 0 && self.lanes.in_memory() == (0, 0) && self.ownership.permits_out() == 0
    }
}

/// A handler that is not called.
struct Unused;

#[async_trait::async_trait]
impl TransactionalRun for Unused {
    async fn run(&self, _: FenceRow, _: &Work<'_>) -> Transacted {
        unreachable!("no run is executed here")
    }

    async fn run_claimed(&self, _: InstanceId, _: &Work<'_>) -> Transacted {
        unreachable!("no run is executed here")
    }
}

impl BatchCall for Unused {
    fn call<'a>(&'a self, _: &'a [&'a Record], _: &'a States) -> BoxFuture<'a, BatchResults> {
        unreachable!("no run is executed here")
    }
}

/// A stop of a lane whose stopping record, 1, is gone.
fn stop(key: &str, reason: StopReason, released_to: RecordId) -> Stop {
    Stop { lane: fixtures::record(1, key).lane(), reason, record: 1, record_exists: false, released_to }
}

fn retried(_: RecordId) -> Outcome {
    Outcome::of(Change::Retry {
        delay: Duration::from_secs(1),
        error: String::new(),
        stop: true,
        counted: true,
    })
}

fn completed(_: RecordId) -> Outcome {
    Outcome::Completed
}

fn missed(stage: &mut Stage) -> bool {
    !stage.wishes().missed.is_empty()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_lanes_whose_records_are_delivered() {
    let mut stage = Stage::new();
    (1..=9).for_each(|id| stage.fetch(id, if id % 2 == 0 { "a" } else { "b" }));
    stage.run(completed);
    assert_eq!(stage.lanes.in_memory().0, 9, "they are in memory until they are durable");
    stage.settle(0);
    assert!(stage.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_would_overtake_a_hold_is_missed() {
    let mut stage = Stage::new();
    stage.fetch(1, "a");
    stage.fetch(2, "a");
    stage.run(retried);
    stage.fetch(3, "a");
    assert_eq!(stage.waiting(), [(1, "retry"), (2, "hold"), (3, "hold")]);
    stage.lanes.0.resume(LaneId(0), 1);
    stage.wishes();
    stage.fetch(4, "a");
    assert!(missed(&mut stage), "it would be delivered before the second");
    assert!(!stage.lanes.0.memory.knows(4));
    stage.settle(0);
    assert!(stage.wishes().fetch, "the lane goes on: it is to be fetched");
    stage.fetch(4, "a");
    stage.run(completed);
    assert_eq!(stage.waiting(), [(4, "complete")]);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_stops_its_lane_no_more_leaves_the_stop_of_a_later_one() {
    let mut stage = Stage::new();
    stage.fetch(1, "a");
    stage.run(retried);
    stage.lanes.0.stop(LaneId(0), 2, StopReason::Blocked);
    stage.lanes.0.resume(LaneId(0), 1);
    assert_eq!(stage.lanes.0.stop_of(LaneId(0)).map(|stop| stop.record), Some(2));
    stage.lanes.0.resume(LaneId(0), 2);
    assert_eq!(stage.lanes.0.stop_of(LaneId(0)), None);
}

/// Another process has released the lane meanwhile: the record that was not held is pending.
#[tokio::test(start_paused = true)]
async fn a_refused_hold_is_fetched_and_the_stops_of_its_lane_are_read_again() {
    let mut stage = Stage::new();
    stage.fetch(1, "a");
    stage.fetch(2, "a");
    stage.run(retried);
    stage.settle(1);
    let wishes = stage.wishes();
    assert!(wishes.stops.contains(Partition::of("a")), "its stops are to be read");
    assert!(wishes.fetch && !wishes.missed.is_empty(), "it is to be fetched");
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_durable_stop_releases_its_lane() {
    let mut stage = Stage::new();
    stage.fetch(1, "a");
    stage.run(retried);
    stage.list(&[]);
    assert!(stage.lanes.0.stop_of(LaneId(0)).is_some(), "the stop is not written yet");
    stage.settle(0);
    stage.wishes();
    stage.list(&[]);
    assert!(stage.wishes().released.contains(Partition::of("a")));
    assert!(stage.is_empty());
}

/// Another instance owns the partition by now. If the partition returns, nothing is left of the write.
#[tokio::test(start_paused = true)]
async fn a_refused_hold_that_is_given_up_leaves_nothing_behind() {
    let mut stage = Stage::new();
    stage.fetch(1, "a");
    stage.fetch(2, "a");
    stage.run(retried);
    assert_eq!(stage.waiting(), [(1, "retry"), (2, "hold")]);
    let mut hold = stage.writes.pop().unwrap();
    stage.lanes.refused(hold.origin.lane);
    hold.origin.pause = Duration::from_secs(1);
    stage.settle(0);
    stage.lanes.close(|_| false);
    stage.lanes.write_given_up(hold);
    assert!(!stage.wishes().missed.is_empty(), "its new owner is to find it");
    assert!(stage.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lane_with_a_refused_write_waits_for_it() {
    let mut stage = Stage::new();
    stage.fetch(1, "a");
    stage.run(completed);
    stage.lanes.refused(LaneId(0));
    stage.fetch(2, "a");
    stage.fetch(3, "b");
    stage.run(completed);
    assert_eq!(stage.waiting(), [(1, "complete"), (3, "complete")]);
    stage.writes[0].origin.pause = Duration::from_secs(1);
    stage.settle(0);
    stage.run(completed);
    assert_eq!(stage.waiting(), [(2, "complete")]);
}

/// A close requeues the records that wait for their run. The partition is free once the running records have
/// ended.
#[tokio::test(start_paused = true)]
async fn what_waits_in_a_closed_partition_is_given_up_and_what_runs_is_not() {
    let mut stage = Stage::new();
    stage.fetch(1, "a");
    stage.fetch(3, "b");
    let running = stage.lanes.next_run(fixtures::PLAIN, Instant::now()).unwrap();
    stage.fetch(2, "a");
    stage.lanes.close(|partition| partition == Partition::of("b"));
    assert_eq!(stage.ownership.permits(Partition::of("a")), 1, "of the record that runs");
    assert!(!stage.lanes.0.memory.knows(2) && stage.lanes.0.memory.knows(3));
    assert_eq!(stage.wishes().missed, [Partition::of("a")].into_iter().collect());
    drop(running);
    assert_eq!(stage.ownership.permits(Partition::of("a")), 0);
}

/// The transaction of a handler is no settle: it lets a lane go on while a hold is under way. The record
/// stays in memory until the hold is durable, so a fetch in between leaves it out and goes past it.
#[tokio::test(start_paused = true)]
async fn what_was_on_its_way_to_be_held_when_its_lane_went_on_is_fetched_again() {
    let mut stage = Stage::new();
    stage.fetch(1, "a");
    stage.run(retried);
    stage.settle(0);
    stage.fetch(1, "a");
    stage.fetch(2, "a");
    assert_eq!(stage.waiting(), [(2, "hold")]);
    stage.run(|_| Outcome::Written);
    stage.wishes();
    let (_, left_out) = stage.lanes.begin_fetch();
    assert_eq!(left_out, [2]);
    stage.lanes.end_fetch();
    stage.settle(0);
    assert!(missed(&mut stage), "its transaction has let the lane go on");
}

/// Two lists of stops have asked for a resume. The record cannot be decoded, so it has stopped its lane again
/// in between.
#[tokio::test(start_paused = true)]
async fn a_resume_that_is_written_twice_leaves_the_stop_that_came_in_between() {
    let mut stage = Stage::new();
    let (lane, reason) = (fixtures::record(1, "a").lane(), StopReason::Unroutable);
    let stops = [Stop { lane, reason, record: 1, record_exists: true, released_to: 0 }];
    for _ in 0..2 {
        stage.list(&stops);
        stage.lanes.resume_unstopped(&stops, |_| true);
    }
    stage.wishes();
    let second = stage.writes.pop().unwrap();
    stage.settle(0);
    stage.fetch(1, "a");
    stage.run(|_| Outcome::of(Change::Unroutable));
    stage.wishes();
    let stop = std::mem::replace(&mut stage.writes, vec![second]);
    stage.settle(0);
    stage.fetch(2, "a");
    assert_eq!(stage.waiting(), [(2, "hold")], "it would overtake the first");
    stage.writes.splice(..0, stop);
    stage.settle(0);
    stage.list(&stops);
    assert!(stage.lanes.0.stop_of(LaneId(0)).is_some());
}

/// The records in memory, by id.
fn in_memory(stage: &Stage) -> Vec<RecordId> {
    let mut ids = stage.lanes.0.memory.ids();
    ids.sort_unstable();
    ids
}

fn set(key: &str) -> PartitionSet {
    [Partition::of(key)].into_iter().collect()
}

/// A list that changes nothing is no reason to fetch.
#[tokio::test(start_paused = true)]
async fn a_list_that_releases_nothing_asks_for_no_fetch() {
    let mut stage = Stage::new();
    stage.wishes();
    stage.list(&[]);
    assert!(!stage.wishes().fetch);
    stage.fetch(1, "a");
    stage.run(retried);
    stage.settle(0);
    stage.wishes();
    stage.list(&[]);
    stage.list(&[]);
    assert!(stage.wishes().fetch, "the second list says nothing new, and the fetch is still wanted");
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_applied_all_misses_nothing() {
    let mut stage = Stage::new();
    for (id, key) in [(1, "a"), (2, "a"), (3, "b")] {
        stage.fetch(id, key);
    }
    stage.run(|id| if id == 1 { retried(id) } else { Outcome::Completed });
    assert_eq!(stage.waiting(), [(1, "retry"), (2, "hold"), (3, "complete")]);
    stage.settle(0);
    assert!(stage.wishes().missed.is_empty());
}
