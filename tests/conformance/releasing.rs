//! Lanes with so many held records that they return in steps.

use keylane::{
    OnFailure, RecordId,
    admin::{Filter, Status, StopReason},
    inner::{Change, Repair},
};

use crate::{
    outbox::{Outbox, Worker, neighbours, partition, record, settlement, stop},
    target::Target,
};

/// More records than return at once, and not a whole number of steps.
const HELD: usize = 1_300;
const STEP: usize = 500;

/// A stopped lane of this key: the worker, the record that stops the lane, and the held records.
async fn stopped<T: Target>(
    outbox: &Outbox<T>,
    key: &str,
    change: Change,
) -> (Worker, RecordId, Vec<RecordId>) {
    let ids = outbox.schedule_keys(&vec![key; HELD + 1]).await;
    let (head, tail) = (ids[0], ids[1..].to_vec());
    let mut worker = outbox.join().await;
    worker.settle([(head, 0, change)]).await;
    let holds = tail.iter().map(|id| settlement((*id, 0, Change::Hold { behind: head }))).collect();
    assert_eq!(worker.settle_all(holds).await.held, HELD);
    (worker, head, tail)
}

/// A lane whose release has begun.
async fn releasing<T: Target>(outbox: &Outbox<T>) -> (Worker, RecordId, Vec<RecordId>) {
    let (mut worker, head, tail) = stopped(outbox, "order-1", stop()).await;
    let settled = worker.settle([(head, 1, Change::CompleteAndResume)]).await;
    assert_eq!((settled.applied, settled.releasing), (1, 1));
    (worker, head, tail)
}

async fn step<T: Target>(outbox: &Outbox<T>, worker: &mut Worker, record: RecordId) -> usize {
    worker.settle([(record, 0, Change::Release)]).await;
    outbox.pending_ids("order-1").await.len()
}

pub(crate) async fn much_that_is_held_returns_in_steps_and_in_order<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, tail) = releasing(outbox).await;
    assert!(outbox.pending().await.is_empty(), "the first step is still to come");
    for returned in [STEP, 2 * STEP] {
        worker.settle([(head, 0, Change::Release)]).await;
        assert_eq!(outbox.pending_ids("order-1").await, tail[..returned]);
        let stops = outbox.stops().await;
        assert_eq!((stops.len(), stops[0].reason, stops[0].record), (1, StopReason::Releasing, head));
        assert!(stops[0].released_to >= tail[returned - 1] && stops[0].released_to < tail[returned]);
        let lane = outbox.store.stopped_lanes(&Filter::all(), 0, 10).await.unwrap().remove(0);
        assert_eq!((lane.reason, lane.held), (StopReason::Releasing, (HELD - returned) as u64));
    }
    worker.settle([(head, 0, Change::Release)]).await;
    assert_eq!(outbox.pending_ids("order-1").await, tail);
    assert!(outbox.stops().await.is_empty(), "nothing is left of it");
}

pub(crate) async fn a_release_outlives_who_began_it<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, tail) = releasing(outbox).await;
    step(outbox, &mut worker, head).await;
    assert!(outbox.store.evict(worker.id, None).await.unwrap());
    let mut next = outbox.join().await;
    for _ in 0..2 {
        step(outbox, &mut next, head).await;
    }
    assert_eq!(outbox.pending_ids("order-1").await, tail);
    assert!(outbox.stops().await.is_empty());
}

pub(crate) async fn a_step_of_a_lane_that_is_not_releasing_returns_nothing<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, _) = stopped(outbox, "order-1", stop()).await;
    assert_eq!(step(outbox, &mut worker, head).await, 0);
    assert_eq!(outbox.stops().await[0].reason, StopReason::Retrying);
}

pub(crate) async fn new_records_wait_behind_a_release<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, tail) = releasing(outbox).await;
    step(outbox, &mut worker, head).await;
    let new = outbox.schedule_keys(&["order-1"]).await[0];
    let hold = |id| (id, 0, Change::Hold { behind: head });
    let settled = worker.settle([hold(new), hold(tail[0])]).await;
    assert_eq!(settled.held, 1, "what has returned is behind nobody");
    for _ in 0..2 {
        step(outbox, &mut worker, head).await;
    }
    assert_eq!(outbox.pending_ids("order-1").await, [tail, vec![new]].concat());
}

pub(crate) async fn a_lane_that_is_releasing_can_be_stopped_again<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, tail) = releasing(outbox).await;
    step(outbox, &mut worker, head).await;
    let hold = |id: &RecordId| settlement((*id, 0, Change::Hold { behind: tail[0] }));
    let mut settlements: Vec<_> = tail[1..STEP].iter().map(hold).collect();
    settlements.push(settlement((head, 0, Change::StopRelease { by: tail[0] })));
    settlements.push(settlement((
        tail[0],
        0,
        Change::Fail { counted: true, error: "no".to_owned(), lane: OnFailure::Block },
    )));
    settlements.push(settlement((head, 0, Change::Release)));
    assert_eq!(worker.settle_all(settlements).await.held, STEP - 1);
    assert!(outbox.pending().await.is_empty());
    let stops = outbox.stops().await;
    assert_eq!((stops.len(), stops[0].reason, stops[0].record), (1, StopReason::Blocked, tail[0]));
    assert!(outbox.store.repair(tail[0], &Repair::Retry).await.unwrap());
    for _ in 0..3 {
        step(outbox, &mut worker, tail[0]).await;
    }
    assert_eq!(outbox.pending_ids("order-1").await, tail);
    assert!(outbox.stops().await.is_empty());
}

pub(crate) async fn a_retry_during_a_release_stops_it<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, head, tail) = releasing(outbox).await;
    step(outbox, &mut worker, head).await;
    worker.settle([(head, 0, Change::StopRelease { by: tail[0] }), (tail[0], 0, stop())]).await;
    let stops = outbox.stops().await;
    assert_eq!((stops[0].reason, stops[0].record, stops[0].released_to), (StopReason::Retrying, tail[0], 0));
}

pub(crate) async fn repairing_before_a_large_backlog_returns_it_in_steps<T: Target>(outbox: &Outbox<T>) {
    let fail = Change::Fail { counted: true, error: "spent".to_owned(), lane: OnFailure::Block };
    let (mut worker, failed, tail) = stopped(outbox, "order-1", fail).await;
    assert!(outbox.store.repair(failed, &Repair::Discard).await.unwrap());
    assert!(!outbox.stops().await[0].record_exists, "and yet the lane is not free");
    assert_eq!(outbox.store.counts().await.unwrap().of(Status::Held), HELD as u64);
    for _ in 0..3 {
        step(outbox, &mut worker, failed).await;
    }
    assert_eq!(outbox.pending_ids("order-1").await, tail);
}

pub(crate) async fn a_release_leaves_the_lanes_beside_it_alone<T: Target>(outbox: &Outbox<T>) {
    let (first, second) = neighbours();
    let (_, _, beside) = stopped(outbox, &second, stop()).await;
    let (mut worker, head, tail) = stopped(outbox, &first, stop()).await;
    worker.settle([(head, 1, Change::CompleteAndResume)]).await;
    for _ in 0..3 {
        worker.settle([(head, 0, Change::Release)]).await;
    }
    assert_eq!(outbox.pending_ids(&first).await, tail);
    assert_eq!(outbox.stops().await.len(), 1);
    assert_eq!(outbox.store.counts().await.unwrap().of(Status::Held), beside.len() as u64);
    let elsewhere =
        outbox.store.stops([partition(i64::from(record(&first).partition.number()))].into_iter().collect());
    assert_eq!(elsewhere.await.unwrap()[0].reason, StopReason::Retrying);
}
