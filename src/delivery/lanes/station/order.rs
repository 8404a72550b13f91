//! The lanes against a simulated table, under any order of events: each key is delivered in order, and no
//! record is left.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{delivery::fixtures, ownership::Ownership};

const KEYS: [&str; 2] = ["a", "b"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Pending,
    Held,
    Delayed,
}

/// One event of the test.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(usize),
    FetchBegins {
        stops: bool,
    },
    FetchEnds,
    RunBegins,
    /// The oldest run ends. The records whose bit in `failing` is set fail.
    RunEnds {
        failing: u8,
    },
    SettleBegins,
    SettleEnds,
    /// Another process releases a lane.
    Release(usize),
    /// The partitions are drained. Once no work is under way, they return in a new generation.
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..KEYS.len()).prop_map(Step::Insert),
        3 => any::<bool>().prop_map(|stops| Step::FetchBegins { stops }),
        3 => Just(Step::FetchEnds),
        3 => Just(Step::RunBegins),
        3 => any::<u8>().prop_map(|failing| Step::RunEnds { failing }),
        2 => Just(Step::SettleBegins),
        2 => Just(Step::SettleEnds),
        1 => (0..KEYS.len()).prop_map(Step::Release),
        1 => Just(Step::Close),
    ]
}

struct Answer {
    seq: u64,
    generation: u32,
    of: PartitionSet,
    stops: Vec<Stop>,
    records: Vec<(RecordId, &'static str, u32)>,
}

/// The table, the lanes, and the work under way between them.
struct World {
    rows: BTreeMap<RecordId, (&'static str, Status, u32)>,
    stops: BTreeMap<&'static str, RecordId>,
    last_id: RecordId,
    delivered: BTreeSet<RecordId>,
    ownership: Ownership,
    closed: bool,
    generation: u32,
    /// The generation in which the stops were read.
    read_for: u32,
    entry: Arc<Entry>,
    lanes: Lanes,
    writes: Batch,
    fetching: Option<Answer>,
    running: Vec<Run>,
    settling: Option<Batch>,
}

impl World {
    fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            stops: BTreeMap::new(),
            last_id: 0,
            delivered: BTreeSet::new(),
            ownership: fixtures::owning_all(),
            closed: false,
            generation: 1,
            read_for: 0,
            entry: fixtures::entry(),
            lanes: Lanes::new(3, fixtures::shares()),
            writes: Batch::default(),
            fetching: None,
            running: Vec::new(),
            settling: None,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Insert(key) => {
                self.last_id += 1;
                self.rows.insert(self.last_id, (KEYS[key], Status::Pending, 0));
            }
            Step::FetchBegins { stops } if self.fetching.is_none() => self.fetch(stops),
            Step::FetchEnds => self.admit(),
            Step::RunBegins => self.running.extend(self.lanes.next_run(fixtures::PLAIN, Instant::now())),
            Step::RunEnds { failing } if !self.running.is_empty() => self.end_run(failing),
            Step::SettleBegins if self.settling.is_none() => {
                self.lanes.take_wishes().writes.into_iter().for_each(|write| self.writes.push(write));
                self.settling = Some(std::mem::take(&mut self.writes)).filter(|batch| batch.len() > 0);
            }
            Step::SettleEnds => {
                if let Some(batch) = self.settling.take() {
                    let settled = self.write(&batch);
                    self.lanes.settled(&batch, &settled);
                }
            }
            Step::Release(key) => {
                if let Some(record) = self.stops.get(KEYS[key]).copied() {
                    self.resume(KEYS[key], record);
                    if let Some((_, status @ Status::Delayed, _)) = self.rows.get_mut(&record) {
                        *status = Status::Pending;
                    }
                }
            }
            Step::Close => {
                self.closed = true;
                self.lanes.close(|_| false);
            }
            _ => {}
        }
    }

    fn fetch(&mut self, with_stops: bool) {
        if self.closed && self.ownership.permits_out() == 0 {
            (self.closed, self.generation) = (false, self.generation + 1);
        }
        let with_stops = with_stops || self.read_for != self.generation;
        let (seq, skip) = self.lanes.begin_fetch();
        let of = if with_stops { PartitionSet::ALL } else { PartitionSet::EMPTY };
        let stop = |(key, record): (&&'static str, &RecordId)| Stop {
            lane: fixtures::record(*record, key).lane(),
            reason: StopReason::Retrying,
            record: *record,
            record_exists: self.rows.contains_key(record),
            released_to: 0,
        };
        let stops = if with_stops { self.stops.iter().map(stop).collect() } else { Vec::new() };
        let found = |wanted| {
            let rows = self.rows.iter().filter(|(id, _)| !skip.contains(id));
            let rows = rows.filter(move |(_, (_, status, _))| *status == wanted);
            rows.map(|(id, (key, _, failures))| (*id, *key, *failures)).take(4).collect::<Vec<_>>()
        };
        let records = [found(Status::Delayed), found(Status::Pending)].concat();
        self.fetching = Some(Answer { seq, generation: self.generation, of, stops, records });
    }

    fn admit(&mut self) {
        let Some(Answer { seq, generation, of, stops, records }) = self.fetching.take() else { return };
        self.lanes.take_stops(&stops, seq, of);
        if !of.is_empty() {
            self.read_for = generation;
        }
        self.lanes.resume_unstopped(&stops, |_| true);
        let admits = !self.closed && self.read_for == self.generation;
        for (id, key, failures) in records {
            let mut record = fixtures::record(id, key);
            record.delivery.attempt = failures + 1;
            let permit = self.ownership.permit(record.delivery.partition).filter(|_| admits);
            self.lanes.admit(Arc::new(record), Duration::ZERO, permit, Some(&self.entry));
        }
        self.lanes.end_fetch();
    }

    fn end_run(&mut self, failing: u8) {
        let mut run = self.running.remove(0);
        for lane in &mut run.lanes {
            while let Some(item) = lane.next() {
                let (id, key) = (item.id(), item.record.delivery.key.clone());
                let earlier = self
                    .rows
                    .range(..id)
                    .find(|(earlier, (of, ..))| **of == *key && !self.delivered.contains(*earlier));
                assert_eq!(earlier, None, "record {id} of {key} is called before an earlier one");
                let fails = failing & (1 << (id % 8)) != 0;
                let change = if fails {
                    Change::Retry { delay: Duration::ZERO, error: String::new(), stop: true, counted: true }
                } else {
                    self.delivered.insert(id);
                    if item.stops_lane { Change::CompleteAndResume } else { Change::Complete }
                };
                lane.end(Outcome::of(change));
            }
            lane.over = true;
        }
        self.lanes.land(Run { goes_on: false, ..run });
    }

    /// Writes a batch as a store would.
    fn write(&mut self, batch: &Batch) -> Settled {
        let mut settled = Settled::default();
        for Settlement { id, failures, change } in &batch.settlements {
            let row = self.rows.get(id).copied().filter(|(_, _, counted)| counted == failures);
            let key = row.map(|(key, ..)| key);
            match (change, key) {
                (Change::Hold { behind }, Some(key)) if self.stops.get(key) == Some(behind) => {
                    self.rows.insert(*id, (key, Status::Held, *failures));
                    settled.held += 1;
                }
                (Change::Complete, Some(_)) => {
                    self.rows.remove(id);
                    settled.applied += 1;
                }
                (Change::CompleteAndResume, Some(key)) => {
                    self.rows.remove(id);
                    self.resume(key, *id);
                    settled.applied += 1;
                }
                (Change::Retry { .. }, Some(key)) => {
                    self.rows.insert(*id, (key, Status::Delayed, failures + 1));
                    self.stops.insert(key, *id);
                    settled.applied += 1;
                }
                (Change::Resume, _) => {
                    let keys: Vec<&str> =
                        KEYS.into_iter().filter(|key| self.stops.get(key) == Some(id)).collect();
                    keys.into_iter().for_each(|key| self.resume(key, *id));
                }
                _ => {}
            }
        }
        settled
    }

    fn resume(&mut self, key: &str, record: RecordId) {
        if self.stops.get(key) == Some(&record) {
            self.stops.remove(key);
            let held = self.rows.values_mut().filter(|(of, status, _)| *of == key && *status == Status::Held);
            held.for_each(|(_, status, _)| *status = Status::Pending);
        }
    }

    /// Delivers all records within a number of rounds, and asserts that none is left in memory.
    fn drain(&mut self) {
        for _ in 0..20 + 4 * self.last_id {
            self.take(Step::FetchEnds);
            self.take(Step::FetchBegins { stops: true });
            self.take(Step::RunBegins);
            self.take(Step::RunEnds { failing: 0 });
            self.take(Step::SettleEnds);
            self.take(Step::SettleBegins);
        }
        assert_eq!(self.rows, BTreeMap::new(), "everything is delivered");
        self.take(Step::FetchEnds);
        self.take(Step::SettleEnds);
        assert_eq!((self.lanes.in_memory(), self.lanes.0.table.len()), ((0, 0), 0));
        assert_eq!(self.ownership.permits_out(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_key_is_delivered_in_order(steps in prop::collection::vec(step(), 1..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let mut world = World::new();
            steps.into_iter().for_each(|step| world.take(step));
            world.drain();
        });
    }
}
