//! Stopped lanes: stops, holds and releases.

use std::time::Duration;

use keylane::{
    OnFailure, RecordId,
    admin::{Filter, Status, StopReason},
    inner::{Change, NewRecord},
    partition::PartitionSet,
};

use crate::{
    outbox::{Outbox, Worker, neighbours, partition, record, retry_after, settlement, stop},
    target::Target,
};

fn fail(lane: OnFailure) -> Change {
    Change::Fail { counted: true, error: "spent".to_owned(), lane }
}

/// A stopped lane of `order-1`: the worker, the record that stops the lane, and the held records.
async fn stopped<T: Target>(outbox: &Outbox<T>, held: usize) -> (Worker, RecordId, Vec<RecordId>) {
    let ids = outbox.schedule_keys(&vec!["order-1"; held + 1]).await;
    let (head, tail) = (ids[0], ids[1..].to_vec());
    let mut worker = outbox.join().await;
    worker.settle([(head, 0, stop())]).await;
    let holds = tail.iter().map(|id| settlement((*id, 0, Change::Hold { behind: head }))).collect();
    assert_eq!(worker.settle_all(holds).await.held, held);
    (worker, head, tail)
}

pub(crate) async fn a_retry_that_stops_makes_a_lane_row<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    worker.settle([(id, 0, stop())]).await;
    let stops = outbox.stops().await;
    assert_eq!(stops.len(), 1);
    assert_eq!(
        stops[0].lane,
        keylane::admin::Lane {
            partition: keylane::partition::Partition::of("order-1"),
            key: "order-1".into(),
            handler: "bookkeeper".into(),
        }
    );
    assert_eq!((stops[0].reason, stops[0].record, stops[0].record_exists), (StopReason::Retrying, id, true));
}

pub(crate) async fn a_retry_that_does_not_stop_makes_none<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    worker.settle([(id, 0, retry_after(Duration::ZERO))]).await;
    assert!(outbox.stops().await.is_empty());
}

pub(crate) async fn a_second_retry_keeps_the_lane_row<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, _) = stopped(outbox, 2).await;
    worker.settle([(head, 1, stop())]).await;
    let lanes = outbox.store.stopped_lanes(&Filter::all(), 0, 10).await.unwrap();
    assert_eq!(lanes.len(), 1);
    assert_eq!((lanes[0].held, lanes[0].attempts), (2, 2));
}

pub(crate) async fn stops_are_read_by_partition<T: Target>(outbox: &Outbox<T>) {
    let records = [1, 2, 3].map(|n| NewRecord { partition: partition(n), ..record("order-1") });
    outbox.schedule(&records).await;
    let ids = outbox.ids_of(&records).await;
    let mut worker = outbox.join().await;
    worker.settle([(ids[0], 0, stop()), (ids[1], 0, stop()), (ids[2], 0, stop())]).await;
    let some: PartitionSet = [partition(1), partition(3)].into_iter().collect();
    let mut found: Vec<_> = outbox.store.stops(some).await.unwrap().iter().map(|stop| stop.record).collect();
    found.sort_unstable();
    assert_eq!(found, [ids[0], ids[2]]);
    assert!(outbox.store.stops(PartitionSet::EMPTY).await.unwrap().is_empty());
}

pub(crate) async fn held_records_are_out_of_the_way<T: Target>(outbox: &Outbox<T>) {
    let (_, head, tail) = stopped(outbox, 3).await;
    assert!(outbox.pending().await.is_empty());
    assert_eq!(outbox.store.counts().await.unwrap().of(Status::Held), 3);
    let lane = outbox.store.stopped_lanes(&Filter::all(), 0, 10).await.unwrap().remove(0);
    assert_eq!((lane.record, lane.held), (head, tail.len() as u64));
}

pub(crate) async fn later_holds_are_counted_on<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, _) = stopped(outbox, 2).await;
    let more = outbox.schedule_keys(&["order-1", "order-1"]).await;
    for id in more {
        worker.settle([(id, 0, Change::Hold { behind: head })]).await;
    }
    assert_eq!(outbox.store.stopped_lanes(&Filter::all(), 0, 10).await.unwrap()[0].held, 4);
}

pub(crate) async fn a_hold_in_the_settle_that_stops_the_lane_is_written<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    // The order is intended: the hold comes first in the batch.
    let settled = worker.settle([(ids[1], 0, Change::Hold { behind: ids[0] }), (ids[0], 0, stop())]).await;
    assert_eq!((settled.applied, settled.held), (1, 1));
}

pub(crate) async fn a_hold_is_refused_once_the_lane_was_released<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, _) = stopped(outbox, 0).await;
    let late = outbox.schedule_keys(&["order-1"]).await[0];
    worker.settle([(head, 1, Change::CompleteAndResume)]).await;
    let settled = worker.settle([(late, 0, Change::Hold { behind: head })]).await;
    assert_eq!((settled.applied, settled.held), (0, 0));
    assert_eq!(outbox.pending_ids("order-1").await, [late], "it would wait for ever");
}

pub(crate) async fn a_hold_behind_a_record_that_stops_nothing_is_refused<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    assert_eq!(worker.settle([(ids[1], 0, Change::Hold { behind: ids[0] })]).await.held, 0);
    assert_eq!(outbox.pending().await.len(), 2);
}

pub(crate) async fn holds_behind_a_standing_and_a_released_lane_are_told_apart<T: Target>(
    outbox: &Outbox<T>,
) {
    let ids = outbox.schedule_keys(&["order-1", "order-1", "order-2", "order-2"]).await;
    let mut worker = outbox.join().await;
    worker.settle([(ids[0], 0, stop()), (ids[2], 0, stop())]).await;
    worker.settle([(ids[2], 1, Change::CompleteAndResume)]).await;
    let holds = [(ids[1], 0, Change::Hold { behind: ids[0] }), (ids[3], 0, Change::Hold { behind: ids[2] })];
    assert_eq!(worker.settle(holds).await.held, 1);
    assert_eq!(crate::outbox::ids(&outbox.pending().await), [ids[3]]);
}

pub(crate) async fn a_delayed_record_can_be_held<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, _) = stopped(outbox, 0).await;
    let due = keylane::inner::Due::After(Duration::ZERO);
    outbox.schedule(&[NewRecord { due, ..record("order-1") }]).await;
    let late = outbox.due().await[0].delivery.id;
    assert_eq!(worker.settle([(late, 0, Change::Hold { behind: head })]).await.held, 1);
    assert!(outbox.due().await.is_empty());
    worker.settle([(head, 1, Change::CompleteAndResume)]).await;
    assert_eq!(outbox.pending_ids("order-1").await, [late]);
}

pub(crate) async fn completing_what_stopped_a_lane_returns_the_held_in_order<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, tail) = stopped(outbox, 5).await;
    assert_eq!(worker.settle([(head, 1, Change::CompleteAndResume)]).await.applied, 1);
    assert_eq!(outbox.pending_ids("order-1").await, tail);
    assert!(outbox.stops().await.is_empty());
}

pub(crate) async fn a_hundred_held_records_come_back_in_order<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, mut tail) = stopped(outbox, 100).await;
    tail.extend(outbox.schedule_keys(&["order-1"]).await);
    worker.settle([(head, 1, Change::CompleteAndResume)]).await;
    assert_eq!(outbox.pending_ids("order-1").await, tail);
}

pub(crate) async fn held_records_keep_their_attempts<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    worker.settle([(ids[1], 0, retry_after(Duration::ZERO))]).await;
    worker.settle([(ids[0], 0, stop())]).await;
    assert_eq!(worker.settle([(ids[1], 1, Change::Hold { behind: ids[0] })]).await.held, 1);
    worker.settle([(ids[0], 1, Change::CompleteAndResume)]).await;
    assert_eq!(outbox.pending().await[0].failures(), 1);
}

pub(crate) async fn resume_alone_lets_the_lane_go_on<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, tail) = stopped(outbox, 3).await;
    worker.settle([(head, 1, Change::Complete)]).await;
    // As after a completion in the handler's transaction: the record is deleted, the row of the lane is not.
    let stops = outbox.stops().await;
    assert_eq!((stops[0].record, stops[0].record_exists), (head, false));
    assert!(outbox.pending().await.is_empty());
    assert_eq!(worker.settle([(head, 1, Change::Resume)]).await.applied, 0);
    assert_eq!(outbox.pending_ids("order-1").await, tail);
    assert!(outbox.stops().await.is_empty());
}

pub(crate) async fn resuming_one_lane_leaves_its_neighbours_alone<T: Target>(outbox: &Outbox<T>) {
    let (one, other) = neighbours();
    let heads = outbox.schedule_keys(&[&one, &other]).await;
    let tails = outbox.schedule_keys(&[&one, &other]).await;
    let mut worker = outbox.join().await;
    worker.settle([(heads[0], 0, stop()), (heads[1], 0, stop())]).await;
    let hold = |n: usize| (tails[n], 0, Change::Hold { behind: heads[n] });
    worker.settle([hold(0), hold(1)]).await;
    worker.settle([(heads[1], 1, Change::CompleteAndResume)]).await;
    assert_eq!(outbox.pending_ids(&one).await, [tails[1]]);
    assert_eq!(outbox.stops().await[0].record, heads[0]);
}

pub(crate) async fn several_lanes_go_on_in_one_settle<T: Target>(outbox: &Outbox<T>) {
    let keys: Vec<String> = (0..20).map(|n| format!("order-{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let (heads, tails) = (outbox.schedule_keys(&keys).await, outbox.schedule_keys(&keys).await);
    let mut worker = outbox.join().await;
    worker.settle_all(heads.iter().map(|id| settlement((*id, 0, stop()))).collect()).await;
    let holds =
        tails.iter().zip(&heads).map(|(id, behind)| settlement((*id, 0, Change::Hold { behind: *behind })));
    assert_eq!(worker.settle_all(holds.collect()).await.held, 20);
    let resumes = heads.iter().map(|id| settlement((*id, 1, Change::CompleteAndResume))).collect();
    assert_eq!(worker.settle_all(resumes).await.applied, 20);
    assert_eq!(outbox.pending().await.len(), 20);
    assert!(outbox.stops().await.is_empty());
}

pub(crate) async fn a_failure_blocks_its_lane<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    assert_eq!(worker.settle([(ids[0], 0, fail(OnFailure::Block))]).await.applied, 1);
    let stops = outbox.stops().await;
    assert_eq!(
        (stops[0].reason, stops[0].record, stops[0].record_exists),
        (StopReason::Blocked, ids[0], true)
    );
    assert_eq!(worker.settle([(ids[1], 0, Change::Hold { behind: ids[0] })]).await.held, 1);
}

pub(crate) async fn a_lane_that_was_retrying_turns_blocked<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, tail) = stopped(outbox, 2).await;
    worker.settle([(head, 1, fail(OnFailure::Block))]).await;
    let lane = outbox.store.stopped_lanes(&Filter::all(), 0, 10).await.unwrap().remove(0);
    assert_eq!((lane.reason, lane.record, lane.attempts), (StopReason::Blocked, head, 2));
    assert_eq!(lane.held, tail.len() as u64);
    assert!(outbox.pending().await.is_empty());
}

pub(crate) async fn a_failure_that_continues_lets_its_lane_go_on<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, tail) = stopped(outbox, 2).await;
    assert_eq!(worker.settle([(head, 1, fail(OnFailure::Continue))]).await.applied, 1);
    assert_eq!(outbox.pending_ids("order-1").await, tail);
    assert!(outbox.stops().await.is_empty());
    assert_eq!(outbox.store.counts().await.unwrap().of(Status::Failed), 1);
}

pub(crate) async fn a_failure_that_continues_leaves_a_lane_stopped_by_another<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    worker.settle([(ids[0], 0, stop())]).await;
    worker.settle([(ids[1], 0, fail(OnFailure::Continue))]).await;
    assert_eq!(outbox.stops().await[0].record, ids[0]);
}

pub(crate) async fn two_failures_of_one_lane_stop_it_once<T: Target>(outbox: &Outbox<T>) {
    // Without stop-on-first-failure, two records of a lane can spend their retries in one settle.
    let ids = outbox.schedule_keys(&["order-1", "order-1", "order-2"]).await;
    let mut worker = outbox.join().await;
    let block = || fail(OnFailure::Block);
    let settled = worker.settle([(ids[1], 0, block()), (ids[0], 0, block()), (ids[2], 0, block())]).await;
    assert_eq!(settled.applied, 3);
    let mut stops: Vec<_> = outbox.stops().await.iter().map(|stop| stop.record).collect();
    stops.sort_unstable();
    assert_eq!(stops.len(), 2, "a lane for each key: {stops:?}");
    assert!(ids[..2].contains(&stops[0]) && stops[1] == ids[2], "{stops:?}");
}

pub(crate) async fn a_hold_of_a_record_that_has_ended_is_not_counted<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let ids = outbox.schedule_keys(&["order-1"; 3]).await;
    worker.settle([(ids[0], 0, stop()), (ids[1], 0, Change::Complete)]).await;
    let hold = Change::Hold { behind: ids[0] };
    let settled = worker.settle([(ids[1], 0, hold.clone()), (ids[2], 0, hold)]).await;
    assert_eq!(settled.held, 1);
    let stopped = outbox.store.stopped_lanes(&Filter::all(), 0, 10).await.unwrap();
    assert_eq!(stopped.iter().map(|lane| lane.held).collect::<Vec<_>>(), [1]);
}
