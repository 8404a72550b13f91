//! Settles whose answer was lost: what became of them, and that it is final.

use keylane::{
    admin::InstanceId,
    inner::{Change, Guard, Resolution, SettleError},
};

use crate::{
    outbox::{Outbox, settlement, stop},
    target::Target,
};

pub(crate) async fn resolve_says_that_it_was_applied<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    let guard = worker.guard();
    worker.settle([(id, 0, Change::Complete)]).await;
    assert_eq!(outbox.store.resolve(guard).await.unwrap(), Resolution::Applied);
    // Asking changes nothing: the counter stands where the settle has put it.
    worker.settle([]).await;
}

pub(crate) async fn resolve_says_that_it_was_not_applied<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    assert_eq!(outbox.store.resolve(worker.guard()).await.unwrap(), Resolution::NotApplied);
    worker.counter = worker.guard().raised().counter;
    worker.settle([]).await;
}

pub(crate) async fn a_late_statement_is_refused_after_resolve<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-2"]).await;
    let worker = outbox.join().await;
    let lost = worker.guard();
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
    let lost = worker.guard();
    outbox.store.resolve(lost).await.unwrap();
    worker.counter = lost.raised().counter;
    worker.settle([(ids[0], 0, Change::Complete)]).await;
    let late = outbox.store.settle(lost, &[settlement((ids[1], 0, Change::Complete))]).await;
    assert!(matches!(late, Err(SettleError::Fenced)), "{late:?}");
    assert_eq!(outbox.pending().await.len(), 1);
}

pub(crate) async fn resolve_may_be_asked_again<T: Target>(outbox: &Outbox<T>) {
    // The answer to resolve can be lost as well: asked again, it says the same.
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    for _ in 0..3 {
        assert_eq!(outbox.store.resolve(worker.guard()).await.unwrap(), Resolution::NotApplied);
    }
    worker.counter = worker.guard().raised().counter;
    let guard = worker.guard();
    worker.settle([(id, 0, Change::Complete)]).await;
    for _ in 0..3 {
        assert_eq!(outbox.store.resolve(guard).await.unwrap(), Resolution::Applied);
    }
}

pub(crate) async fn resolve_says_that_the_instance_was_evicted<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    outbox.store.evict(worker.id, None).await.unwrap();
    for counter in [0, 1, 7] {
        let guard = Guard { counter, ..worker.guard() };
        assert_eq!(outbox.store.resolve(guard).await.unwrap(), Resolution::Closed);
    }
    assert!(outbox.store.beat(worker.id).await.unwrap().is_none());
}

pub(crate) async fn resolve_without_a_guard_row_says_closed<T: Target>(outbox: &Outbox<T>) {
    let guard = Guard { instance: InstanceId::generate(), slot: 0, counter: 0 };
    assert_eq!(outbox.store.resolve(guard).await.unwrap(), Resolution::Closed);
}

pub(crate) async fn resolve_touches_only_its_own_row<T: Target>(outbox: &Outbox<T>) {
    let (worker, mut other) = (outbox.join().await, outbox.join().await);
    outbox.store.resolve(worker.guard()).await.unwrap();
    let second = Guard { slot: 1, ..worker.guard() };
    assert!(outbox.store.settle(second, &[]).await.is_ok());
    other.settle([]).await;
}
