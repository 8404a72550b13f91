//! Which records run, and which of them together.

use super::*;
use crate::rules::rate::Rate;

/// The transaction of a handler is no settle: it could become durable before what the lane has written.
#[tokio::test(start_paused = true)]
async fn a_transactional_lane_runs_once_its_writes_are_durable() {
    let mut stage = Stage::of(Form::Transactional { call: Arc::new(Unused), size: 1, mixed: false });
    stage.fetch(1, "a");
    assert!(stage.begin_run(false).is_empty(), "it needs a fence row");
    let mut run = stage.lanes.next_run(fixtures::TRANSACTIONAL, Instant::now()).unwrap();
    stage.fetch(2, "a");
    run.lanes[0].end(completed(1));
    run.lanes[0].over = true;
    stage.lanes.land(Run { goes_on: false, ..run });
    assert!(stage.begin_run(true).is_empty(), "the completion is not durable");
    stage.settle(0);
    assert_eq!(stage.begin_run(true), [[2]]);
}

#[tokio::test(start_paused = true)]
async fn a_mixed_batch_takes_records_of_several_lanes() {
    let mut stage = Stage::of(Form::Batch { call: Arc::new(Unused), size: 4, mixed: true });
    for (id, key) in [(1, "a"), (2, "a"), (3, "b"), (4, "c"), (5, "c"), (6, "d")] {
        stage.fetch(id, key);
    }
    assert_eq!(stage.begin_run(false), [vec![1, 2], vec![3], vec![4]]);
    assert_eq!(stage.begin_run(false), [[6]]);
    assert!(stage.begin_run(false).is_empty());
    let mut stage = Stage::of(Form::Batch { call: Arc::new(Unused), size: 4, mixed: false });
    (1..=6).for_each(|id| stage.fetch(id, if id < 6 { "a" } else { "b" }));
    assert_eq!(stage.begin_run(false), [[1, 2, 3, 4]]);
    assert_eq!(stage.begin_run(false), [[6]]);
}

/// A process may not survive its call.
#[tokio::test(start_paused = true)]
async fn a_suspected_record_runs_by_itself() {
    let mut stage = Stage::of(Form::Batch { call: Arc::new(Unused), size: 4, mixed: true });
    stage.suspect("b", (1, 3, 1));
    for (id, key) in [(1, "a"), (3, "b"), (4, "b"), (5, "c")] {
        stage.fetch(id, key);
    }
    assert_eq!(stage.begin_run(false), [vec![1], vec![5]]);
    assert_eq!(stage.begin_run(false), [[3]]);
    let mut stage = Stage::of(Form::Batch { call: Arc::new(Unused), size: 4, mixed: true });
    stage.suspect("a", (1, 1, 1));
    stage.fetch(1, "a");
    stage.fetch(2, "c");
    assert_eq!(stage.begin_run(false), [[2]]);
    assert_eq!(stage.begin_run(false), [[1]]);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_has_met_too_many_crashes_fails_without_a_call() {
    let mut stage = Stage::new();
    stage.suspect("a", (3, 1, 3));
    stage.fetch(1, "a");
    stage.fetch(2, "b");
    assert_eq!(stage.begin_run(false), [[2]]);
    let wishes = stage.lanes.take_wishes();
    let change = &wishes.writes[0].settlement.change;
    assert!(matches!(change, Change::Fail { counted: true, .. }), "{change:?}");
    assert!(wishes.signals.iter().any(|signal| matches!(signal, Signal::RecordFailed { attempts: 1, .. })));
}

/// The clock of the database has jumped ahead, or a fetch was long under way.
#[tokio::test(start_paused = true)]
async fn a_deadline_counts_from_the_beginning_of_its_fetch() {
    let mut stage = Stage::new();
    let mut record = fixtures::record(1, "a");
    record.delivery.expires_in = Some(Duration::from_secs(2));
    let permit = stage.ownership.permit(record.delivery.partition);
    stage.lanes.admit(Arc::new(record), Duration::from_secs(5), permit, Some(&stage.entry));
    let run = stage.lanes.next_run(fixtures::PLAIN, Instant::now()).unwrap();
    assert_eq!(run.lanes[0].items[0].0.expires, Some(Duration::from_secs(7)));
}

#[tokio::test(start_paused = true)]
async fn a_handler_with_a_limit_runs_again_once_a_run_has_ended() {
    let mut stage = Stage::new();
    Arc::get_mut(&mut stage.entry).unwrap().concurrency = Some(1);
    stage.fetch(1, "a");
    stage.fetch(2, "b");
    let mut run = stage.lanes.next_run(fixtures::PLAIN, Instant::now()).unwrap();
    assert!(stage.begin_run(false).is_empty());
    stage.lanes.land(Run::new(Arc::clone(&run.entry), Default::default()));
    assert!(stage.begin_run(false).is_empty(), "more reports of it follow");
    run.lanes[0].end(Outcome::Completed);
    run.lanes[0].over = true;
    stage.lanes.land(Run { goes_on: false, ..run });
    assert_eq!(stage.begin_run(false), [[2]]);
}

/// Its next record would be delivered before what the database refuses is settled.
#[tokio::test(start_paused = true)]
async fn a_mixed_batch_leaves_out_a_lane_with_a_refused_write() {
    let mut stage = Stage::of(Form::Batch { call: Arc::new(Unused), size: 4, mixed: true });
    stage.fetch(1, "a");
    stage.fetch(2, "b");
    stage.lanes.refused(LaneId(1));
    assert_eq!(stage.begin_run(false), [[1]]);
    assert!(stage.begin_run(false).is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_asks_is_told_when_the_rate_of_a_handler_lets_it_run_again() {
    let mut stage = Stage::new();
    Arc::get_mut(&mut stage.entry).unwrap().rate = Some(Rate::per_second(1));
    assert_eq!(stage.lanes.next_start(), None);
    stage.fetch(1, "a");
    stage.fetch(2, "b");
    let now = Instant::now();
    assert_eq!((stage.begin_run(false), stage.begin_run(false)), (vec![vec![1]], vec![]));
    assert_eq!(stage.lanes.next_start(), Some(now + Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn suspected_partitions_are_told_of_and_calm_down() {
    let mut stage = Stage::new();
    stage.suspect("a", (0, 1, 0));
    assert!(stage.wishes().signals.is_empty());
    stage.suspect("a", (2, 1, 0));
    let signals = stage.wishes().signals;
    let of_it = |signal: &Signal| matches!(signal, Signal::CrashesSuspected { partitions } if *partitions == set("a"));
    assert!(signals.iter().any(of_it), "{signals:?}");
    assert!(stage.lanes.calm(Duration::from_secs(1), Instant::now()).is_empty());
    assert_eq!(stage.lanes.calm(Duration::ZERO, Instant::now()), set("a"));
}

#[tokio::test(start_paused = true)]
async fn suspects_take_turns_and_one_has_to_leave_first() {
    let mut stage = Stage::of(Form::Batch { call: Arc::new(Unused), size: 4, mixed: true });
    stage.suspect("a", (1, 1, 1));
    stage.suspect("b", (1, 2, 1));
    stage.fetch(1, "a");
    stage.fetch(2, "b");
    stage.run(completed);
    assert_eq!(stage.waiting(), [(1, "complete")]);
    assert!(stage.begin_run(false).is_empty(), "the outcome of the first is not durable");
    stage.settle(0);
    assert_eq!(stage.begin_run(false), [[2]]);
}

/// Whatever happens to a lane that is ready, only what it still may run is run.
#[tokio::test(start_paused = true)]
async fn a_ready_lane_is_looked_at_again_before_it_runs() {
    let mut stage = Stage::new();
    stage.fetch(1, "a");
    stage.lanes.refused(LaneId(0));
    assert!(stage.begin_run(false).is_empty(), "a write of it was refused");
    let mut stage = Stage::new();
    stage.fetch(1, "a");
    stage.run(completed);
    stage.fetch(2, "a");
    stage.lanes.close(|_| false);
    assert!(stage.begin_run(false).is_empty(), "its queue was given up");
}
