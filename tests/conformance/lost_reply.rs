//! Settles with a lost reply: their resolution, and that it is final.

use keylane::{
    admin::InstanceId,
    inner::{Change, FenceRow, Resolution, SettleError},
};

use crate::{
    outbox::{Outbox, settlement, stop},
    target::Target,
};

pub(crate) async fn resolve_says_that_it_was_applied<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    let fence = worker.fence();
    worker.settle([(id, 0, Change::Complete)]).await;
    assert_eq!(outbox.store.resolve(fence).await.unwrap(), Resolution::Applied);
    // A resolution of a written settle changes nothing: the counter stays as the settle has set it.
    worker.settle([]).await;
}

pub(crate) async fn resolve_says_that_it_was_not_applied<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    assert_eq!(outbox.store.resolve(worker.fence()).await.unwrap(), Resolution::NotApplied);
    worker.counter = worker.fence().invalidated().counter;
    worker.settle([]).await;
}

pub(crate) async fn a_late_statement_is_refused_after_resolve<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-2"]).await;
    let worker = outbox.join().await;
    let lost = worker.fence();
    assert_eq!(outbox.store.resolve(lost).await.unwrap(), Resolution::NotApplied);
    for change in [Change::Complete, stop()] {
        let late = outbox.store.settle(lost, &[settlement((ids[0], 0, change))]).await;
        assert!(matches!(late, Err(SettleError::Fenced)), "{late:?}");
    }
    assert_eq!(outbox.pending().await.len(), 2);
    assert!(outbox.stops().await.is_empty());
}

pub(crate) async fn a_late_statement_is_refused_after_resolve_and_another_settle<T: Target>(
    outbox: &Outbox<T>,
) {
    let ids = outbox.schedule_keys(&["order-1", "order-2"]).await;
    let mut worker = outbox.join().await;
    let lost = worker.fence();
    outbox.store.resolve(lost).await.unwrap();
    worker.counter = lost.invalidated().counter;
    worker.settle([(ids[0], 0, Change::Complete)]).await;
    let late = outbox.store.settle(lost, &[settlement((ids[1], 0, Change::Complete))]).await;
    assert!(matches!(late, Err(SettleError::Fenced)), "{late:?}");
    assert_eq!(outbox.pending().await.len(), 1);
}

pub(crate) async fn resolve_may_be_asked_again<T: Target>(outbox: &Outbox<T>) {
    // The reply of a resolution can be lost as well: a second one has the same result.
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    for _ in 0..3 {
        assert_eq!(outbox.store.resolve(worker.fence()).await.unwrap(), Resolution::NotApplied);
    }
    worker.counter = worker.fence().invalidated().counter;
    let fence = worker.fence();
    worker.settle([(id, 0, Change::Complete)]).await;
    for _ in 0..3 {
        assert_eq!(outbox.store.resolve(fence).await.unwrap(), Resolution::Applied);
    }
}

pub(crate) async fn resolve_says_that_the_instance_was_evicted<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    outbox.store.evict(worker.id, None).await.unwrap();
    for counter in [0, 1, 7] {
        let fence = FenceRow { counter, ..worker.fence() };
        assert_eq!(outbox.store.resolve(fence).await.unwrap(), Resolution::Closed);
    }
    assert!(outbox.store.beat(worker.id).await.unwrap().is_none());
}

pub(crate) async fn resolve_without_a_fence_row_says_closed<T: Target>(outbox: &Outbox<T>) {
    let fence = FenceRow { instance: InstanceId::generate(), ..outbox.join().await.fence() };
    assert_eq!(outbox.store.resolve(fence).await.unwrap(), Resolution::Closed);
}

pub(crate) async fn resolve_touches_only_its_own_row<T: Target>(outbox: &Outbox<T>) {
    let (worker, mut other) = (outbox.join().await, outbox.join().await);
    outbox.store.resolve(worker.fence()).await.unwrap();
    let second = FenceRow { slot: 1, ..worker.fence() };
    assert!(outbox.store.settle(second, &[]).await.is_ok());
    other.settle([]).await;
}
