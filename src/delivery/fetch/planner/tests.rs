//! What the planner fetches next, after answers and events.

mod polls;

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{delivery::fixtures, record::Record, rules::reading::Statement};

const CONFIG: usize = 64;

fn config() -> DeliveryConfig {
    DeliveryConfig { batch_size: CONFIG / 4, max_in_flight: CONFIG, ..DeliveryConfig::default() }
}

/// A planner of an instance that owns everything, with what it believes to be in memory.
struct Stage {
    planner: Planner,
    ownership: Ownership,
    now: Instant,
    in_memory: usize,
    /// Records that wait in the database.
    waiting: usize,
    seq: u64,
}

impl Stage {
    fn new() -> Self {
        let (ownership, now) = (fixtures::owning_all(), Instant::now());
        let planner = Planner::new(&config(), InstanceId::generate(), ListenState::default(), now);
        Self { planner, ownership, now, in_memory: 0, waiting: 0, seq: 0 }
    }

    /// Begins the next fetch, if the planner says so.
    fn begin(&mut self) -> Option<FetchRequest> {
        let in_memory = (self.in_memory, self.in_memory * 100);
        match self.planner.next(in_memory, |_| 0, &self.ownership, self.now) {
            Step::Wait => None,
            Step::CutQueues(_) => {
                self.planner.queues_cut(PartitionSet::EMPTY);
                None
            }
            Step::Fetch(begin) => {
                self.seq += 1;
                Some(self.planner.begin(begin, (self.seq, Vec::new()), &self.ownership, self.now))
            }
        }
    }

    fn take(&mut self, result: &FetchResult, admitted: usize) {
        self.planner.answered(result, PartitionSet::EMPTY, self.now);
        self.planner.admitted(&Answer::from(result), admitted, self.now);
    }

    /// Answers a fetch with a record for each key, of which `admitted` are admitted.
    fn answer(&mut self, request: FetchRequest, keys: &[&str], (admitted, more): (usize, bool)) {
        let records = (1..).zip(keys).map(|(id, key)| Arc::new(fixtures::record(id, key))).collect();
        self.take(&FetchResult { more, new: !keys.is_empty(), ..empty(request, records) }, admitted);
    }

    /// Begins the next fetch, which must be of these partitions, and answers it.
    fn fetch_of(&mut self, partitions: PartitionSet, keys: &[&str], ends: (usize, bool)) {
        let request = self.begin().expect("a fetch is wanted");
        assert_eq!(request.partitions(), partitions);
        self.answer(request, keys, ends);
    }

    /// Fetches if the planner says so, and has the database answer or fail.
    fn fetch(&mut self, fails: bool) -> Option<usize> {
        let request = self.begin()?;
        assert!(request.limit > 0 && !request.partitions().is_empty());
        assert!(request.partitions().without(self.ownership.owned()).is_empty(), "only what is owned");
        assert!(self.in_memory + request.limit <= CONFIG, "never more than memory takes");
        if fails {
            self.planner.failed(&request, self.now);
            return None;
        }
        let brought = request.limit.min(self.waiting);
        let records = (0..brought).map(|id| Arc::new(fixtures::record(id as i64 + 1, "a"))).collect();
        let (more, new) = (brought == request.limit, brought > 0);
        self.take(&FetchResult { more, new, ..empty(request, records) }, brought);
        self.in_memory += brought;
        self.waiting -= brought;
        Some(brought)
    }

    fn advance(&mut self) {
        self.now = self.now.max(self.planner.next_timer(self.now));
        self.planner.fire(self.in_memory, self.now);
    }
}

fn empty(request: FetchRequest, records: Vec<Arc<Record>>) -> FetchResult {
    FetchResult {
        request,
        records,
        stops: Vec::new(),
        suspicions: Vec::new(),
        new: false,
        more: false,
        more_due: false,
        error: None,
        walked: None,
        cluster_changes: None,
    }
}

/// The partition of the key `a`, and all others.
fn one_and_others() -> (PartitionSet, PartitionSet) {
    let one: PartitionSet = [Partition::of("a")].into_iter().collect();
    (one, PartitionSet::ALL.without(one))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Whatever has failed, been cut or waited for: what waits is fetched in the end, and memory is kept.
    #[test]
    fn whatever_waits_is_fetched(steps in prop::collection::vec(0_u8..7, 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let mut stage = Stage::new();
            for step in steps {
                match step {
                    0 => {
                        stage.waiting += 40;
                        stage.planner.want();
                    }
                    1 | 2 => drop(stage.fetch(false)),
                    3 => drop(stage.fetch(true)),
                    4 => stage.in_memory /= 2,
                    5 => stage.planner.mark_missed(PartitionSet::ALL),
                    _ => stage.advance(),
                }
            }
            stage.planner.want();
            for _ in 0..200 {
                stage.in_memory = 0;
                if stage.fetch(false).is_none() {
                    stage.advance();
                }
            }
            assert_eq!(stage.waiting, 0);
        });
    }
}

/// A fetch that nobody asks for is left out while the version of the database stays the same.
#[tokio::test(start_paused = true)]
async fn what_is_left_or_missed_is_fetched_though_nobody_commits() {
    let mut stage = Stage::new();
    let version_after = |stage: &mut Stage, more| {
        let (asked, version) = (false, Some(7));
        let (partitions, handlers, part) = (PartitionSet::ALL, Handlers::Every, false);
        let (brought, new, more_due) = (usize::from(more), more, false);
        let answer = Answer { partitions, handlers, part, brought, new, more, more_due, asked, version };
        stage.planner.admitted(&answer, brought, stage.now);
        stage.planner.listening.version
    };
    assert_eq!(version_after(&mut stage, true), None);
    assert_eq!(version_after(&mut stage, false), Some(7));
    stage.planner.mark_missed(PartitionSet::ALL);
    stage.planner.want();
    assert!(stage.fetch(false).is_some());
    assert_eq!(stage.planner.listening.version, None);
}

#[tokio::test(start_paused = true)]
async fn a_hot_partition_is_fetched_by_itself_until_it_has_no_more() {
    let (mut stage, (one, others)) = (Stage::new(), one_and_others());
    stage.planner.queues_cut(one);
    stage.fetch_of(one, &["a"], (1, true));
    stage.fetch_of(one, &["a"], (1, false));
    stage.fetch_of(PartitionSet::ALL, &[], (0, false));
    assert!(stage.begin().is_none(), "nothing is wanted");
    stage.planner.queues_cut(one);
    stage.planner.want();
    stage.fetch_of(one, &["a"], (0, true));
    stage.fetch_of(others, &[], (0, false));
    assert!(stage.begin().is_none(), "it has brought nothing that could be admitted");
    stage.planner.released(one);
    stage.fetch_of(one, &["a"], (1, true));
}

/// The fetches of the other handlers have passed over the records of the hot one.
#[tokio::test(start_paused = true)]
async fn a_handler_that_is_no_longer_hot_is_looked_for_everywhere() {
    let mut stage = Stage::new();
    stage.fetch_of(PartitionSet::ALL, &[], (0, false));
    let cut = stage.planner.cut_handlers([(0, "h"), (1, "i")].into_iter(), |number| 40 - number, stage.now);
    assert_eq!(cut, (vec![0], CONFIG / 2));
    let request = stage.begin().expect("it is fetched by itself");
    assert_eq!((request.handlers.clone(), request.part), (Handlers::Only("h".into()), true));
    assert!(request.due, "no other fetch brings its due records");
    stage.answer(request, &["a"], (1, true));
    assert!(stage.planner.missed.is_empty());
    // Its next fetch brings all. From then on it is like the others.
    let others = stage.begin().expect("it is the others' turn");
    assert_eq!(others.handlers, Handlers::Except(vec!["h".into()]));
    stage.answer(others, &[], (0, false));
    let request = stage.begin().expect("there was more");
    assert_eq!(request.handlers, Handlers::Only("h".into()));
    stage.answer(request, &["a"], (1, false));
    assert_eq!(stage.planner.missed, PartitionSet::ALL);
    let request = stage.begin().expect("the others too");
    assert_eq!((request.handlers, request.part), (Handlers::Every, false));
}

/// A search that walks over the records of hot handlers takes too long.
#[tokio::test(start_paused = true)]
async fn handlers_are_fetched_together_again_if_to_leave_one_out_takes_too_long() {
    let mut stage = Stage::new();
    stage.planner.cut_handlers([(0, "h"), (1, "i")].into_iter(), |number| 40 - number, stage.now);
    let request = stage.begin().expect("it is fetched by itself");
    stage.answer(request, &["a"], (1, true));
    let request = stage.begin().expect("then the others");
    assert_eq!(request.handlers, Handlers::Except(vec!["h".into()]));
    stage.now += Duration::from_secs(2);
    stage.answer(request, &[], (0, false));
    assert_eq!(stage.planner.missed, PartitionSet::ALL);
    assert_eq!(stage.begin().expect("all are wanted").handlers, Handlers::Every);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_admitted_is_not_fetched_again_at_once() {
    let mut stage = Stage::new();
    stage.fetch_of(PartitionSet::ALL, &["a"], (1, true));
    stage.fetch_of(PartitionSet::ALL, &["a"], (0, true));
    assert!(stage.begin().is_none());
    stage.planner.want();
    stage.fetch_of(PartitionSet::ALL, &[], (0, true));
    stage.fetch_of(PartitionSet::ALL, &[], (0, false));
    stage.planner.want_due();
    let request = stage.begin().expect("due records are wanted");
    assert!(request.due && !request.part && !request.asked, "others are not");
    let result = FetchResult { more_due: true, ..empty(request, vec![Arc::new(fixtures::record(1, "a"))]) };
    for (admitted, again) in [(0, false), (1, true)] {
        stage.planner.admitted(&Answer::from(&result), admitted, stage.now);
        assert_eq!(stage.planner.due_wanted, again, "{admitted}");
    }
}

/// While memory is almost full, a little of what is idle is fetched, once for each piece of news.
#[tokio::test(start_paused = true)]
async fn a_part_with_more_is_fetched_on_although_memory_is_short() {
    let mut stage = Stage::new();
    stage.fetch_of(PartitionSet::ALL, &[], (0, false));
    stage.planner.want();
    stage.in_memory = CONFIG * 3 / 4;
    let request = stage.begin().expect("the last quarter is for the idle");
    assert!(request.part && request.limit == 1, "{}", request.limit);
    stage.answer(request, &["a"], (1, true));
    let request = stage.begin().expect("there is more");
    stage.answer(request, &["a"], (1, false));
    assert!(stage.begin().is_none(), "there is no news");
    stage.in_memory = 0;
    assert!(!stage.begin().expect("the fetch of all is still wanted").part);
}

#[test]
fn only_a_fetch_of_partitions_by_themselves_brings_all_of_a_part() {
    let answer = |part, more, handlers| Answer {
        partitions: PartitionSet::ALL,
        handlers,
        part,
        brought: 1,
        new: true,
        more,
        more_due: false,
        asked: true,
        version: None,
    };
    assert!(answer(true, false, Handlers::Every).is_all_of_a_part());
    assert!(!answer(false, false, Handlers::Every).is_all_of_a_part());
    assert!(!answer(true, true, Handlers::Every).is_all_of_a_part());
    assert!(!answer(true, false, Handlers::Only("h".into())).is_all_of_a_part());
    assert!(!answer(false, true, Handlers::Only("h".into())).is_all_of_a_part());
}

#[tokio::test(start_paused = true)]
async fn partitions_take_turns_behind_the_last_record() {
    let mut stage = Stage::new();
    stage.fetch_of(PartitionSet::ALL, &["b", "a"], (2, true));
    let request = stage.begin().expect("there is more");
    let first = Partition::of("a").number().wrapping_add(1);
    let order = request.turn.order();
    assert_eq!((order[0].number(), order.len()), (first, 256));
    assert_eq!(order.last().copied(), Some(Partition::of("a")));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_failed_leaves_all_to_the_next_one() {
    let (mut stage, (one, _)) = (Stage::new(), one_and_others());
    stage.advance();
    stage.fetch_of(PartitionSet::ALL, &[], (0, false));
    stage.planner.read_stops_again(one);
    stage.planner.mark_missed(one);
    stage.planner.want();
    stage.planner.want_due();
    let request = stage.begin().expect("all is wanted");
    assert_eq!((request.stops, request.due, request.asked), (one, true, true));
    stage.planner.failed(&request, stage.now);
    assert!(stage.begin().is_none(), "not at once");
    assert_eq!(stage.planner.next_timer(stage.now), stage.now + ERROR_PAUSE);
    stage.now += ERROR_PAUSE;
    let request = stage.begin().expect("after a pause");
    assert_eq!((request.stops, request.due, request.asked), (one, true, true));
}

/// A lane is released in steps: its partition becomes hot.
#[tokio::test(start_paused = true)]
async fn a_lane_that_is_released_in_steps_is_fetched_by_itself() {
    let (mut stage, (one, others)) = (Stage::new(), one_and_others());
    let request = stage.begin().expect("the first fetch");
    let result = empty(request, Vec::new());
    stage.planner.answered(&result, one, stage.now);
    stage.planner.admitted(&Answer::from(&result), 0, stage.now);
    stage.fetch_of(one, &["a"], (1, true));
    stage.fetch_of(one, &["a"], (0, true));
    stage.fetch_of(others, &[], (0, false));
    stage.planner.close(|_| false);
    stage.planner.want();
    stage.fetch_of(PartitionSet::ALL, &[], (0, false));
}

#[tokio::test(start_paused = true)]
async fn large_payloads_make_the_next_fetch_smaller() {
    let mut stage = Stage::new();
    let request = stage.begin().expect("the first fetch");
    assert_eq!(request.limit, CONFIG / 4);
    let large = |id| Arc::new(Record { payload: vec![0; 8 << 20], ..fixtures::record(id, "a") });
    let result = FetchResult { more: true, ..empty(request, vec![large(1), large(2)]) };
    stage.take(&result, 2);
    // Three quarters of 64 MiB, for records of half of 8 MiB as it takes them to be.
    assert_eq!(stage.begin().expect("there is more").limit, 11);
}
