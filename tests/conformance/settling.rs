//! Writing outcomes of single records, by compare-and-set on attempts and status.

use std::time::Duration;

use keylane::{
    Completed, OnFailure, RecordId,
    admin::{Filter, Status, StopReason},
    inner::{Change, SettleError},
};

use crate::{
    outbox::{Outbox, Worker, a_moment, retry_after, settlement, stop},
    target::Target,
};

fn fail(lane: OnFailure) -> Change {
    Change::Fail { counted: true, error: "spent".to_owned(), lane }
}

/// Every kind of outcome of a single record.
fn outcomes() -> [Change; 6] {
    let now = Duration::ZERO;
    let (block, go_on) = (fail(OnFailure::Block), fail(OnFailure::Continue));
    [Change::Complete, Change::CompleteAndResume, stop(), retry_after(now), block, go_on]
}

async fn count<T: Target>(outbox: &Outbox<T>, status: Status) -> u64 {
    outbox.store.counts().await.unwrap().of(status)
}

async fn one<T: Target>(outbox: &Outbox<T>) -> (Worker, RecordId) {
    (outbox.join().await, outbox.schedule_keys(&["order-1"]).await[0])
}

pub(crate) async fn a_completed_record_is_deleted<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, id) = one(outbox).await;
    assert_eq!(worker.settle([(id, 0, Change::Complete)]).await.applied, 1);
    assert!(outbox.store.counts().await.unwrap().records.iter().all(|(_, count)| *count == 0));
}

pub(crate) async fn a_completed_record_is_archived<T: Target>(outbox: &Outbox<T>) {
    let (worker, id) = one(outbox).await;
    let store = outbox.store_that(Completed::Archive);
    let mut worker = worker.over(store);
    assert_eq!(worker.settle([(id, 0, Change::Complete)]).await.applied, 1);
    assert!(outbox.store.counts().await.unwrap().records.iter().all(|(_, count)| *count == 0));
    a_moment().await;
    assert_eq!(
        outbox.store.purge(Duration::ZERO, Duration::from_secs(60)).await.unwrap(),
        1,
        "in the archive"
    );
}

pub(crate) async fn a_completed_record_is_kept<T: Target>(outbox: &Outbox<T>) {
    let (worker, id) = one(outbox).await;
    let mut worker = worker.over(outbox.store_that(Completed::Keep));
    assert_eq!(worker.settle([(id, 0, Change::Complete)]).await.applied, 1);
    assert_eq!(count(outbox, Status::Completed).await, 1);
    assert!(outbox.pending().await.is_empty());
    assert!(outbox.due().await.is_empty());
}

pub(crate) async fn resuming_completions_are_archived_or_kept_too<T: Target>(outbox: &Outbox<T>) {
    // These changes do not use the fast settle.
    let ids = outbox.schedule_keys(&["order-1", "order-2"]).await;
    let mut worker = outbox.join().await.over(outbox.store_that(Completed::Keep));
    assert_eq!(worker.settle([(ids[0], 0, Change::CompleteAndResume)]).await.applied, 1);
    assert_eq!(count(outbox, Status::Completed).await, 1);
    let mut worker = worker.over(outbox.store_that(Completed::Archive));
    assert_eq!(worker.settle([(ids[1], 0, Change::CompleteAndResume)]).await.applied, 1);
    a_moment().await;
    assert_eq!(outbox.store.purge(Duration::ZERO, Duration::from_secs(60)).await.unwrap(), 2);
}

pub(crate) async fn a_record_is_completed_once<T: Target>(outbox: &Outbox<T>) {
    for completed in [Completed::Delete, Completed::Archive, Completed::Keep] {
        let (worker, id) = one(outbox).await;
        let mut worker = worker.over(outbox.store_that(completed));
        for (change, applied) in
            [(Change::Complete, 1), (Change::Complete, 0), (Change::CompleteAndResume, 0)]
        {
            assert_eq!(worker.settle([(id, 0, change)]).await.applied, applied, "{completed:?}");
        }
    }
}

pub(crate) async fn a_record_that_is_not_there_is_passed_over<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, id) = one(outbox).await;
    for change in outcomes().into_iter().chain([Change::Unroutable]) {
        assert_eq!(worker.settle([(id + 999, 0, change)]).await.applied, 0);
    }
    assert_eq!(outbox.pending().await.len(), 1);
    assert!(outbox.stops().await.is_empty());
}

pub(crate) async fn a_stale_count_of_attempts_writes_nothing<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, id) = one(outbox).await;
    worker.settle([(id, 0, retry_after(Duration::ZERO))]).await;
    for change in outcomes() {
        for failures in [0, 2] {
            let settled = worker.settle([(id, failures, change.clone())]).await;
            assert_eq!(settled.applied, 0, "{change:?} with {failures} failures");
        }
    }
    assert_eq!(outbox.due().await[0].failures(), 1);
    assert!(outbox.stops().await.is_empty());
    assert_eq!(worker.settle([(id, 1, Change::Complete)]).await.applied, 1);
}

pub(crate) async fn a_stale_failure_stops_no_lane<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, id) = one(outbox).await;
    for change in [stop(), fail(OnFailure::Block)] {
        worker.settle([(id, 3, change)]).await;
    }
    assert!(outbox.stops().await.is_empty());
}

pub(crate) async fn a_stale_completion_resumes_no_lane<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, id) = one(outbox).await;
    let behind = outbox.schedule_keys(&["order-1"]).await[0];
    worker.settle([(id, 0, stop())]).await;
    worker.settle([(behind, 0, Change::Hold { behind: id })]).await;
    for change in [Change::CompleteAndResume, fail(OnFailure::Continue)] {
        worker.settle([(id, 0, change)]).await;
    }
    assert!(outbox.pending().await.is_empty(), "a later record would overtake");
    assert_eq!(outbox.stops().await.len(), 1);
}

pub(crate) async fn a_failed_record_is_left_alone<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, id) = one(outbox).await;
    worker.settle([(id, 0, fail(OnFailure::Block))]).await;
    for change in outcomes().into_iter().chain([Change::Unroutable]) {
        for failures in [0, 1] {
            let applied = worker.settle([(id, failures, change.clone())]).await.applied;
            assert_eq!(applied, 0, "{change:?} with {failures} failures");
        }
    }
    assert_eq!(count(outbox, Status::Failed).await, 1);
    assert_eq!(outbox.stops().await[0].reason, StopReason::Blocked);
}

pub(crate) async fn a_held_record_is_left_alone<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, id) = one(outbox).await;
    let behind = outbox.schedule_keys(&["order-1"]).await[0];
    worker.settle([(id, 0, stop())]).await;
    worker.settle([(behind, 0, Change::Hold { behind: id })]).await;
    for change in outcomes().into_iter().chain([Change::Unroutable]) {
        assert_eq!(worker.settle([(behind, 0, change.clone())]).await.applied, 0, "{change:?}");
    }
    assert_eq!(worker.settle([(behind, 0, Change::Hold { behind: id })]).await.held, 0);
    assert_eq!(count(outbox, Status::Held).await, 1);
}

pub(crate) async fn a_kept_record_is_left_alone<T: Target>(outbox: &Outbox<T>) {
    let (worker, id) = one(outbox).await;
    let mut worker = worker.over(outbox.store_that(Completed::Keep));
    worker.settle([(id, 0, Change::Complete)]).await;
    for change in outcomes().into_iter().chain([Change::Unroutable]) {
        assert_eq!(worker.settle([(id, 0, change.clone())]).await.applied, 0, "{change:?}");
    }
    assert_eq!(count(outbox, Status::Completed).await, 1);
}

pub(crate) async fn a_retry_counts_an_attempt_and_keeps_the_error<T: Target>(outbox: &Outbox<T>) {
    let (mut worker, id) = one(outbox).await;
    for failures in 0..3 {
        assert_eq!(worker.settle([(id, failures, retry_after(Duration::ZERO))]).await.applied, 1);
        let again = outbox.due().await.remove(0);
        assert_eq!((again.failures(), again.delivery.attempt), (failures + 1, failures + 2));
    }
    assert_eq!(count(outbox, Status::Delayed).await, 1);
    worker.settle([(id, 3, fail(OnFailure::Continue))]).await;
    let failed = outbox.store.failed(&Filter::all(), 0, 10).await.unwrap().remove(0);
    assert_eq!((failed.id, failed.attempts), (id, 4));
    assert_eq!(failed.last_error.as_deref(), Some("spent"));
}

pub(crate) async fn a_settle_of_a_thousand_of_each_is_written<T: Target>(outbox: &Outbox<T>) {
    let keys: Vec<String> = (0..3_000).map(|n| format!("order-{n}")).collect();
    let ids = outbox.schedule_keys(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut worker = outbox.join().await;
    let change = |(place, id): (usize, &RecordId)| match place % 3 {
        0 => settlement((*id, 0, Change::Complete)),
        1 => settlement((*id, 0, stop())),
        _ => settlement((*id, 0, fail(OnFailure::Block))),
    };
    let settled = worker.settle_all(ids.iter().enumerate().map(change).collect()).await;
    assert_eq!((settled.applied, settled.held), (3_000, 0));
    let counts = outbox.store.counts().await.unwrap();
    assert_eq!((counts.of(Status::Failed), counts.of(Status::Delayed)), (1_000, 1_000));
    assert_eq!(outbox.stops().await.len(), 2_000);
}

pub(crate) async fn five_thousand_completions_are_one_settle<T: Target>(outbox: &Outbox<T>) {
    let keys = vec!["order-1"; 5_000];
    outbox.schedule(&keys.iter().map(|key| crate::outbox::record(key)).collect::<Vec<_>>()).await;
    let ids = crate::outbox::ids(&outbox.pending().await);
    let mut worker = outbox.join().await;
    let all = ids.into_iter().map(|id| settlement((id, 0, Change::Complete))).collect();
    assert_eq!(worker.settle_all(all).await.applied, 5_000);
    assert!(outbox.pending().await.is_empty());
}

/// Most of the records have neighbouring ids.
pub(crate) async fn a_settle_takes_what_it_names_and_nothing_between<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    for completed in [Completed::Delete, Completed::Archive, Completed::Keep] {
        worker = worker.over(outbox.store_that(completed));
        let ids = outbox.schedule_keys(&["order-1"; 12]).await;
        let named = [8, 7, 6, 5, 10, 0, 1, 2, 3].map(|n: usize| (ids[n], 0, Change::Complete));
        let past = worker.fence();
        worker.settle([]).await;
        let refused = worker.store.settle(past, &named.clone().map(settlement)).await;
        assert!(matches!(refused, Err(SettleError::Fenced)), "{refused:?}");
        assert_eq!(outbox.pending_ids("order-1").await, ids);
        assert_eq!(worker.settle(named).await.applied, 9);
        let left = [4, 9, 11].map(|n: usize| ids[n]);
        assert_eq!(outbox.pending_ids("order-1").await, left);
        assert_eq!(worker.settle(left.map(|id| (id, 0, Change::Complete))).await.applied, 3);
    }
}

pub(crate) async fn settles_do_not_wait_for_the_disk_if_told_so<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-2"]).await;
    let settings = keylane::inner::StoreSettings { async_settle: true, ..outbox.settings(Completed::Delete) };
    let mut worker = outbox.join().await.over(outbox.store_with(settings));
    worker.settle([(ids[0], 0, Change::Complete)]).await;
    worker.settle([(ids[1], 0, stop())]).await;
    assert!(outbox.pending().await.is_empty());
}

/// Unused connections are closed, and opened again when needed.
pub(crate) async fn a_store_that_rests_works_on<T: Target>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-2", "order-3"]).await;
    let mut worker = outbox.join().await;
    for id in ids {
        assert!(outbox.pending().await.iter().any(|record| record.delivery.id == id));
        worker.settle([(id, 0, Change::Complete)]).await;
        outbox.store.close_idle(Duration::from_secs(60)).await;
        outbox.store.close_idle(Duration::ZERO).await;
        assert!(outbox.store.beat(worker.id).await.unwrap().is_some());
    }
    assert!(outbox.pending().await.is_empty());
}
