//! Records without a handler in this build.

use keylane::{
    admin::{Filter, Status, StopReason},
    inner::Change,
};

use crate::{
    outbox::{Outbox, stop},
    target::Target,
};

pub(crate) async fn an_unroutable_record_stands_still_and_counts_no_attempt<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    assert_eq!(worker.settle([(id, 0, Change::Unroutable)]).await.applied, 1);
    assert!(outbox.pending().await.is_empty());
    assert_eq!(outbox.store.counts().await.unwrap().of(Status::Held), 1);
    let stops = outbox.stops().await;
    assert_eq!(
        (stops[0].reason, stops[0].record, stops[0].record_exists),
        (StopReason::Unroutable, id, true)
    );
    let lane = outbox.store.stopped_lanes(&Filter::all(), 0, 10).await.unwrap().remove(0);
    assert_eq!((lane.attempts, lane.last_error), (0, None));
}

pub(crate) async fn an_unroutable_lane_goes_on_where_its_handler_is_known<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    worker.settle([(ids[0], 0, Change::Unroutable)]).await;
    worker.settle([(ids[1], 0, Change::Hold { behind: ids[0] })]).await;
    worker.settle([(ids[0], 0, Change::Resume)]).await;
    assert_eq!(outbox.pending_ids("order-1").await, ids);
    assert!(outbox.pending().await.iter().all(|record| record.delivery.attempt == 1));
    assert!(outbox.stops().await.is_empty());
}

pub(crate) async fn several_unroutable_records_of_a_lane_come_back_together<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    let settled = worker.settle([(ids[0], 0, Change::Unroutable), (ids[1], 0, Change::Unroutable)]).await;
    assert_eq!(settled.applied, 2);
    worker.settle([(ids[2], 0, Change::Unroutable)]).await;
    let stops = outbox.stops().await;
    assert_eq!(stops.len(), 1);
    worker.settle([(stops[0].record, 0, Change::Resume)]).await;
    assert_eq!(outbox.pending_ids("order-1").await, ids);
}

pub(crate) async fn an_unroutable_record_in_a_stopped_lane_comes_back_with_it<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    worker.settle([(ids[0], 0, stop())]).await;
    worker.settle([(ids[1], 0, Change::Unroutable)]).await;
    let stops = outbox.stops().await;
    assert_eq!((stops.len(), stops[0].record, stops[0].reason), (1, ids[0], StopReason::Retrying));
    worker.settle([(ids[0], 1, Change::CompleteAndResume)]).await;
    assert_eq!(outbox.pending_ids("order-1").await, [ids[1]]);
}
