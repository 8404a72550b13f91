//! What a lane knows of its stop, and what is missed of a settle.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_a_settle_did_not_apply_is_looked_for() {
    let mut stage = Stage::new();
    stage.lanes.mark_missed(set("b"));
    assert_eq!(stage.wishes().missed, set("b"));
    stage.list(&[stop("a", StopReason::Retrying, 0)]);
    stage.lanes.resume_unstopped(&[stop("a", StopReason::Retrying, 0)], |_| true);
    stage.fetch(3, "b");
    stage.run(completed);
    stage.wishes();
    let mut batch = Batch::default();
    stage.writes.drain(..).for_each(|write| batch.push(write));
    assert_eq!(batch.len(), 2, "one of them is of a lane");
    stage.lanes.settled(&batch, &Settled { applied: 1, ..Settled::default() });
    assert_ne!(stage.wishes().missed, PartitionSet::ALL, "all that is of records was applied");
    stage.lanes.settled(&batch, &Settled::default());
    assert_eq!(stage.wishes().missed, PartitionSet::ALL);
}

/// A retry ends by itself, and a record without a handler waits for another build.
#[tokio::test(start_paused = true)]
async fn a_lane_knows_why_it_stands_still() {
    let unroutable = |_| Outcome::of(Change::Unroutable);
    for (end, reason) in [
        (&retried as &dyn Fn(RecordId) -> Outcome, StopReason::Retrying),
        (&unroutable, StopReason::Unroutable),
    ] {
        let mut stage = Stage::new();
        stage.fetch(1, "a");
        stage.run(end);
        let waits = stage.lanes.waiting_for_others() == set("a");
        assert_eq!(waits, reason == StopReason::Unroutable);
        let mut stage = Stage::new();
        let listed = [Stop { record_exists: true, ..stop("a", reason, 0) }];
        stage.list(&listed);
        stage.lanes.resume_unstopped(&listed, |_| false);
        assert!(stage.waiting().is_empty());
        stage.lanes.resume_unstopped(&listed, |_| true);
        assert_eq!(stage.waiting().len() == 1, reason == StopReason::Unroutable, "adopted by this build");
    }
}

/// This build has no handler for it.
#[tokio::test(start_paused = true)]
async fn a_record_without_a_handler_stops_its_lane() {
    let mut stage = Stage::new();
    let record = fixtures::record(1, "a");
    let permit = stage.ownership.permit(record.delivery.partition);
    stage.lanes.admit(Arc::new(record), Duration::ZERO, permit, None);
    stage.fetch(2, "a");
    assert_eq!(stage.lanes.waiting_for_others(), set("a"));
    let wishes = stage.lanes.take_wishes();
    let told = wishes.signals.iter().any(|signal| matches!(signal, Signal::Unroutable { record: 1, .. }));
    assert!(told, "{:?}", wishes.signals);
    let changes: Vec<_> = wishes.writes.iter().map(|write| &write.settlement.change).collect();
    assert!(matches!(changes[..], [Change::Unroutable, Change::Hold { behind: 1 }]), "{changes:?}");
}

/// The record that had stopped it is gone, and this instance has not seen the lane before.
#[tokio::test(start_paused = true)]
async fn a_listed_lane_without_its_record_goes_on_once_that_is_durable() {
    let mut stage = Stage::new();
    let stops = [stop("a", StopReason::Retrying, 0)];
    stage.list(&stops);
    stage.lanes.resume_unstopped(&stops, |_| true);
    assert_eq!(stage.waiting(), [(1, "other")]);
    assert!(stage.lanes.0.stop_of(LaneId(0)).is_some());
    stage.wishes();
    stage.settle(0);
    assert_eq!(stage.lanes.0.stop_of(LaneId(0)), None);
    assert!(stage.wishes().fetch);
}
