//! The fence: an outcome is written only if the fence row has the expected counter, and the counter moves on.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use keylane::{
    OnFailure,
    admin::{Filter, InstanceId, Status},
    inner::{Change, ErrorClass, FenceRow, Resolution, SettleError, Settlement},
    partition::PartitionSet,
    rules::horizon::Server,
};

use crate::{
    outbox::{Outbox, Worker, record, retry_after, settlement, stop},
    target::Target,
};

/// One record per kind of change that a worker can write, and the changes.
struct EveryChange {
    settlements: Vec<Settlement>,
}

impl EveryChange {
    /// Two lanes are stopped, with a record held behind the first; all other records are pending.
    async fn prepare<T: Target>(outbox: &Outbox<T>, owner: &mut Worker) -> Self {
        let keys: Vec<String> = (0..9).map(|n| format!("order-{n}")).collect();
        let ids = outbox.schedule_keys(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let behind = outbox.schedule_keys(&["order-0", "order-0"]).await;
        owner.settle([(ids[0], 0, stop()), (ids[1], 0, stop())]).await;
        owner.settle([(behind[0], 0, Change::Hold { behind: ids[0] })]).await;
        let error = "late".to_owned();
        let fail = |lane| Change::Fail { counted: true, error: error.clone(), lane };
        let changes = [
            (ids[0], 1, Change::CompleteAndResume),
            (ids[1], 1, Change::Resume),
            (ids[2], 0, Change::Complete),
            (ids[3], 0, stop()),
            (ids[4], 0, retry_after(Duration::ZERO)),
            (ids[5], 0, fail(OnFailure::Block)),
            (ids[6], 0, fail(OnFailure::Continue)),
            (ids[7], 0, Change::Unroutable),
            (behind[1], 0, Change::Hold { behind: ids[0] }),
        ];
        Self { settlements: changes.into_iter().map(settlement).collect() }
    }

    /// Asserts that the fence row refuses each change alone and all together, and that nothing is written.
    async fn are_refused<T: Target>(&self, outbox: &Outbox<T>, fence: FenceRow) {
        let before = everything(outbox).await;
        for settlement in &self.settlements {
            let refused = outbox.store.settle(fence, std::slice::from_ref(settlement)).await;
            assert!(matches!(refused, Err(SettleError::Fenced)), "{:?}: {refused:?}", settlement.change);
        }
        let refused = outbox.store.settle(fence, &self.settlements).await;
        assert!(matches!(refused, Err(SettleError::Fenced)), "all together: {refused:?}");
        assert_eq!(everything(outbox).await, before, "a refused settle has written something");
    }
}

/// All state that an outcome could change.
async fn everything<T: Target>(outbox: &Outbox<T>) -> String {
    let pending: Vec<_> =
        outbox.pending().await.iter().map(|record| (record.delivery.id, record.failures())).collect();
    let mut stops: Vec<_> = outbox.stops().await.iter().map(|stop| (stop.record, stop.reason)).collect();
    stops.sort_by_key(|(record, _)| *record);
    let held: Vec<_> = outbox
        .store
        .stopped_lanes(&Filter::all(), 0, 100)
        .await
        .unwrap()
        .iter()
        .map(|lane| lane.held)
        .collect();
    let counts = outbox.store.counts().await.unwrap();
    let counts = Status::ALL.map(|status| counts.of(status));
    let failed = outbox.store.failed(&Filter::all(), 0, 100).await.unwrap();
    format!("{pending:?} {stops:?} {held:?} {counts:?} {failed:?}")
}

pub(crate) async fn a_settle_moves_the_counter_on_by_one<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-2", "order-3"]).await;
    let mut worker = outbox.join().await;
    for (counter, id) in ids.into_iter().enumerate() {
        assert_eq!(worker.counter, counter as i64);
        worker.settle([(id, 0, Change::Complete)]).await;
    }
    // A settle of another kind, and an empty one, move the counter as well.
    let id = outbox.schedule_keys(&["order-4"]).await[0];
    worker.settle([(id, 0, stop())]).await;
    worker.settle([]).await;
    assert_eq!(outbox.store.resolve(worker.fence()).await.unwrap(), Resolution::NotApplied);
}

pub(crate) async fn fence_refuses_a_counter_that_is_behind<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let every = EveryChange::prepare(outbox, &mut worker).await;
    let counter = worker.counter - 1;
    every.are_refused(outbox, FenceRow { counter, ..worker.fence() }).await;
    worker.settle_all(every.settlements).await;
}

pub(crate) async fn fence_refuses_a_counter_that_is_ahead<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let every = EveryChange::prepare(outbox, &mut worker).await;
    let counter = worker.counter + 1;
    every.are_refused(outbox, FenceRow { counter, ..worker.fence() }).await;
    worker.settle_all(every.settlements).await;
}

pub(crate) async fn fence_refuses_an_evicted_instance<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let every = EveryChange::prepare(outbox, &mut worker).await;
    assert!(outbox.store.evict(worker.id, Some(0)).await.unwrap());
    every.are_refused(outbox, worker.fence()).await;
}

pub(crate) async fn fence_refuses_an_instance_that_has_left<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let every = EveryChange::prepare(outbox, &mut worker).await;
    outbox.store.leave(worker.id).await.unwrap();
    every.are_refused(outbox, worker.fence()).await;
}

pub(crate) async fn fence_refuses_without_a_fence_row<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let every = EveryChange::prepare(outbox, &mut worker).await;
    every
        .are_refused(outbox, FenceRow { instance: InstanceId::generate(), counter: 0, ..worker.fence() })
        .await;
    every.are_refused(outbox, FenceRow { slot: 2, ..worker.fence() }).await;
}

/// A server that has taken over may have a copy of the row with the same counter.
pub(crate) async fn fence_refuses_on_another_server<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let every = EveryChange::prepare(outbox, &mut worker).await;
    let server = Server(worker.server.0 + 1);
    every.are_refused(outbox, FenceRow { server, ..worker.fence() }).await;
    worker.settle_all(every.settlements).await;
}

pub(crate) async fn what_is_bound_to_a_server_hears_no_other<T: Target>(outbox: &Outbox<T>) {
    let server = outbox.store.server().await.unwrap();
    let home = outbox.store.bound_to(server);
    assert!(home.view().await.is_ok());
    assert!(home.server_changed().now_or_never().is_none());
    let other = outbox.store.bound_to(Server(server.0 + 1));
    for store in [other.for_heartbeat(), Arc::clone(&other)] {
        let refused = store.view().await.unwrap_err();
        assert_eq!(refused.class, ErrorClass::Reconnect);
        assert!(refused.to_string().contains("another server answers"), "{refused}");
        other.server_changed().await;
    }
    assert!(other.stops(PartitionSet::ALL).await.is_err());
    assert!(other.settle(outbox.join().await.fence(), &[]).await.is_err());
    assert!(outbox.store.view().await.is_ok(), "a store that is bound to none");
}

pub(crate) async fn fence_refuses_a_purged_instance<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let every = EveryChange::prepare(outbox, &mut worker).await;
    outbox.store.leave(worker.id).await.unwrap();
    crate::outbox::a_moment().await;
    assert_eq!(outbox.store.purge_instances(Duration::from_millis(1)).await.unwrap(), 1);
    every.are_refused(outbox, worker.fence()).await;
}

pub(crate) async fn a_valid_fence_row_lets_every_change_through<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let every = EveryChange::prepare(outbox, &mut worker).await;
    let settled = worker.settle_all(every.settlements).await;
    assert_eq!((settled.applied, settled.held), (7, 1));
    assert_eq!(outbox.store.resolve(worker.fence()).await.unwrap(), Resolution::NotApplied);
}

pub(crate) async fn slots_count_apart<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-2"]).await;
    let mut worker = outbox.join().await;
    worker.settle([(ids[0], 0, Change::Complete)]).await;
    let second = FenceRow { slot: 1, counter: 0, ..worker.fence() };
    let settled = outbox.store.settle(second, &[settlement((ids[1], 0, Change::Complete))]).await.unwrap();
    assert_eq!(settled.applied, 1);
    worker.settle([]).await;
}

pub(crate) async fn of_two_settles_with_one_fence_row_one_is_written<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let second_store = outbox.store_that(keylane::Completed::Delete);
    for round in 0..10 {
        let ids = outbox.schedule_keys(&["order-1", "order-2"]).await;
        let [one, other] = [ids[0], ids[1]].map(|id| {
            // Both the fast settle, which is one statement on PostgreSQL, and the long one.
            let change = if round % 2 == 0 { Change::Complete } else { Change::CompleteAndResume };
            [settlement((id, 0, change))]
        });
        let (one, other) = tokio::join!(
            worker.store.settle(worker.fence(), &one),
            second_store.settle(worker.fence(), &other)
        );
        assert!(one.is_ok() ^ other.is_ok(), "{one:?} and {other:?}");
        let refused = if one.is_ok() { other } else { one };
        assert!(matches!(refused, Err(SettleError::Fenced)), "{refused:?}");
        worker.counter += 1;
        assert_eq!(outbox.pending().await.len(), round + 1);
    }
}

pub(crate) async fn nothing_is_written_after_an_eviction_came_through<T: Target>(outbox: &Outbox<T>) {
    let evictor = outbox.store_that(keylane::Completed::Delete);
    for _ in 0..10 {
        let worker = outbox.join().await;
        let id = outbox.schedule_keys(&["order-1"]).await[0];
        let late = [settlement((id, 0, Change::Complete))];
        let evicted_then_read = async {
            assert!(evictor.evict(worker.id, Some(0)).await.unwrap());
            outbox.pending().await.len()
        };
        let (settled, left) = tokio::join!(worker.store.settle(worker.fence(), &late), evicted_then_read);
        // The state that the new owner reads after the eviction does not change.
        assert_eq!(outbox.pending().await.len(), left, "written after the eviction");
        match settled {
            Ok(_) => assert_eq!(left, 0),
            Err(SettleError::Fenced) => assert_eq!(left, 1),
            Err(error) => panic!("{error:?}"),
        }
        outbox.join().await.settle([(id, 0, Change::Complete)]).await;
    }
}

pub(crate) async fn settles_leave_all_fence_rows_in_place<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, bystander) = (outbox.join().await, outbox.join().await);
    let every = EveryChange::prepare(outbox, &mut worker).await;
    worker.settle_all(every.settlements).await;
    outbox.schedule(&[record("order-1")]).await;
    for (worker, counter) in [(&worker, worker.counter), (&bystander, 0)] {
        let own = FenceRow { counter, ..worker.fence() };
        assert_eq!(outbox.store.resolve(own).await.unwrap(), Resolution::NotApplied);
        let second = FenceRow { slot: 1, counter: 0, ..worker.fence() };
        assert_eq!(outbox.store.resolve(second).await.unwrap(), Resolution::NotApplied);
        assert!(outbox.store.beat(worker.id).await.unwrap().is_some(), "the instance row is there");
    }
}
