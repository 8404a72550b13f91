//! Ages and delays, by the database's clock.

use std::time::{Duration, SystemTime};

use keylane::{
    RecordId,
    inner::{Change, Due, NewRecord, Pick},
    partition::{Partition, PartitionSet},
};

use crate::{
    outbox::{ALL, Outbox, due_record, ids, record, retry_after},
    target::Target,
};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(3600);

/// Waits until `count` records are due.
async fn becomes_due<T: Target>(outbox: &Outbox<T>, count: usize) {
    let started = tokio::time::Instant::now();
    while outbox.due().await.len() < count {
        assert!(started.elapsed() < Duration::from_secs(10), "nothing became due");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The rank of each id in the order of scheduling.
fn ranks(ids: &[RecordId]) -> Vec<usize> {
    ids.iter().map(|id| ids.iter().filter(|other| *other < id).count()).collect()
}

pub(crate) async fn a_record_for_later_is_neither_fetched_nor_due<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule(&[due_record("order-1", Due::After(LONG))]).await;
    outbox.schedule(&[due_record("order-2", Due::At(SystemTime::now() + LONG))]).await;
    assert!(outbox.pending().await.is_empty());
    assert!(outbox.due().await.is_empty());
}

pub(crate) async fn a_delayed_record_becomes_due_after_its_delay<T: Target>(outbox: &Outbox<T>) {
    let scheduled = tokio::time::Instant::now();
    outbox.schedule(&[due_record("order-1", Due::After(SHORT))]).await;
    becomes_due(outbox, 1).await;
    assert!(scheduled.elapsed() >= SHORT - Duration::from_millis(5), "due after {:?}", scheduled.elapsed());
    assert!(outbox.pending().await.is_empty(), "it is due, not pending");
    assert_eq!(outbox.due().await[0].delivery.attempt, 1);
}

pub(crate) async fn a_due_time_that_has_passed_is_due_at_once<T: Target>(outbox: &Outbox<T>) {
    let past = Due::At(SystemTime::now() - Duration::from_secs(5));
    outbox.schedule(&[due_record("order-1", past), due_record("order-2", Due::After(Duration::ZERO))]).await;
    assert_eq!(outbox.due().await.len(), 2);
}

pub(crate) async fn the_longest_due_comes_first<T: Target>(outbox: &Outbox<T>) {
    let ago = |seconds| Due::At(SystemTime::now() - Duration::from_secs(seconds));
    outbox.schedule(&[due_record("order-1", ago(2))]).await;
    outbox.schedule(&[due_record("order-1", ago(4))]).await;
    outbox.schedule(&[due_record("order-1", ago(3))]).await;
    assert_eq!(ranks(&ids(&outbox.due().await)), [1, 2, 0]);
}

pub(crate) async fn due_times_a_microsecond_apart_keep_their_order<T: Target>(outbox: &Outbox<T>) {
    let past = SystemTime::now() - Duration::from_secs(5);
    let offsets: [u64; 5] = [300, 100, 500, 200, 400];
    for offset in offsets {
        let at = Due::At(past + Duration::from_nanos(offset * 10));
        outbox.schedule(&[due_record("order-1", at)]).await;
    }
    assert_eq!(ranks(&ids(&outbox.due().await)), [1, 3, 0, 4, 2]);
}

pub(crate) async fn due_reads_only_its_partitions<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule(&["order-1", "order-2"].map(|key| due_record(key, Due::After(Duration::ZERO)))).await;
    let partitions: PartitionSet = [Partition::of("order-2")].into_iter().collect();
    let due = outbox.store.fetch_due(partitions, Pick::new(&[], ALL)).await.unwrap().0;
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].delivery.key, "order-2");
    assert!(outbox.store.fetch_due(PartitionSet::EMPTY, Pick::new(&[], ALL)).await.unwrap().0.is_empty());
}

pub(crate) async fn due_leaves_out_what_is_skipped_and_stops_at_its_limit<T: Target>(outbox: &Outbox<T>) {
    outbox.schedule(&vec![due_record("order-1", Due::After(Duration::ZERO)); 5]).await;
    let due = ids(&outbox.due().await);
    assert_eq!(due.len(), 5);
    let some = outbox.store.fetch_due(PartitionSet::ALL, Pick::new(&due[..2], 2)).await.unwrap().0;
    assert_eq!(some.len(), 2);
    assert!(some.iter().all(|record| due[2..].contains(&record.delivery.id)));
}

pub(crate) async fn a_retry_is_due_after_its_delay<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    let settled = tokio::time::Instant::now();
    worker.settle([(id, 0, retry_after(SHORT))]).await;
    assert!(outbox.pending().await.is_empty());
    becomes_due(outbox, 1).await;
    assert!(settled.elapsed() >= SHORT - Duration::from_millis(5));
    let again = outbox.due().await.remove(0);
    assert_eq!((again.delivery.id, again.delivery.attempt, again.failures()), (id, 2, 1));
}

pub(crate) async fn retries_of_one_settle_are_due_by_their_delays<T: Target>(outbox: &Outbox<T>) {
    // One statement, so that both delays count from about the same moment: a busy server can rest between two rows.
    let ids = outbox.schedule_keys(&["order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    let (near, far) = (Duration::from_millis(50), Duration::from_secs(1));
    worker.settle([(ids[0], 0, retry_after(far)), (ids[1], 0, retry_after(near))]).await;
    becomes_due(outbox, 2).await;
    assert_eq!(crate::outbox::ids(&outbox.due().await), [ids[1], ids[0]]);
}

pub(crate) async fn a_very_long_delay_is_kept<T: Target>(outbox: &Outbox<T>) {
    let year = Duration::from_secs(366 * 24 * 3600);
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    assert_eq!(worker.settle([(id, 0, retry_after(100 * year))]).await.applied, 1);
    outbox.schedule(&[due_record("order-2", Due::After(100 * year))]).await;
    assert!(outbox.due().await.is_empty());
}

pub(crate) async fn the_age_counts_from_scheduling<T: Target>(outbox: &Outbox<T>) {
    let before = tokio::time::Instant::now();
    outbox.schedule_keys(&["order-1"]).await;
    let scheduled = tokio::time::Instant::now();
    tokio::time::sleep(SHORT).await;
    let slack = Duration::from_millis(5);
    let (least, age) = (scheduled.elapsed(), outbox.pending().await[0].delivery.age);
    assert!(age + slack >= least && age <= before.elapsed() + slack, "{age:?} is not about {least:?}");
}

pub(crate) async fn the_age_goes_on_through_retries<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut worker = outbox.join().await;
    worker.settle([(id, 0, retry_after(SHORT))]).await;
    becomes_due(outbox, 1).await;
    assert!(outbox.due().await[0].delivery.age + Duration::from_millis(5) >= SHORT);
}

pub(crate) async fn ages_have_the_precision_of_the_clock<T: Target>(outbox: &Outbox<T>) {
    for _ in 0..8 {
        outbox.schedule(&[record("order-1")]).await;
    }
    let ages: Vec<Duration> = outbox.pending().await.iter().map(|record| record.delivery.age).collect();
    let step = T::CLOCK_STEP;
    let coarser = ages.iter().all(|age| age.as_micros() % (step.as_micros() * 10) == 0);
    assert!(!coarser, "no age is finer than {:?}: {ages:?}", step * 10);
}

pub(crate) async fn a_delayed_record_can_be_completed<T: Target>(outbox: &Outbox<T>) {
    let new: NewRecord = due_record("order-1", Due::After(Duration::ZERO));
    outbox.schedule(&[new]).await;
    let id = outbox.due().await[0].delivery.id;
    let mut worker = outbox.join().await;
    assert_eq!(worker.settle([(id, 0, Change::Complete)]).await.applied, 1);
    assert!(outbox.due().await.is_empty());
}
