//! Cancelling: a record that is not due yet is deleted in the caller's transaction, and is then never
//! delivered.

use std::time::{Duration, SystemTime};

use keylane::{
    OnFailure,
    database::Database,
    inner::{Cancel, Change, Due, Named, NewRecord, Pick},
    partition::{Partition, PartitionSet},
};
use tokio::time::{Instant, sleep};

use crate::{
    outbox::{ALL, Outbox, a_moment, assert_waits, due_record, ids, promptly, record, retry_after},
    target::{Target, Tx},
};

/// Times until a record is due. On a busy machine a cancel may take longer than the first.
const SHORT_MS: [u64; 3] = [400, 4_000, 40_000];
const LONG: Duration = Duration::from_secs(3600);

fn later(key: &str, delay: Duration) -> NewRecord {
    due_record(key, Due::After(delay))
}

async fn cancel<T: Target>(outbox: &Outbox<T>, tx: &mut Tx<T>, key: &str, named: Named) -> u64 {
    let cancel = Cancel { partition: Partition::of(key), key: key.to_owned(), named };
    T::Db::cancel(tx, &outbox.producer, &cancel).await.unwrap()
}

async fn cancel_event<T: Target>(outbox: &Outbox<T>, tx: &mut Tx<T>, record: &NewRecord) -> u64 {
    cancel(outbox, tx, &record.key, Named::Event(record.event_id)).await
}

/// Cancels in a separate transaction.
async fn cancel_alone<T: Target>(outbox: &Outbox<T>, record: &NewRecord) -> u64 {
    let mut tx = outbox.begin().await;
    let cancelled = cancel_event(outbox, &mut tx, record).await;
    outbox.commit(tx).await;
    cancelled
}

/// A transaction that has cancelled, and how many records with each cancel.
type Cancelling<T> = (Tx<T>, Vec<u64>);

/// Schedules records and cancels events in a transaction that stays open. `None` if that took so long that a record
/// may have become due before.
async fn begin_cancel<T: Target>(
    outbox: &Outbox<T>,
    records: &[NewRecord],
    cancelled: &[&NewRecord],
    due_after: Duration,
) -> Option<Cancelling<T>> {
    let began = Instant::now();
    outbox.schedule(records).await;
    let (mut tx, mut counts) = (outbox.begin().await, Vec::new());
    for record in cancelled {
        counts.push(cancel_event(outbox, &mut tx, record).await);
    }
    (began.elapsed() < due_after).then_some((tx, counts))
}

/// A transaction that has cancelled the only record, whose time has come since. `None` if the cancel was late.
async fn cancelling_when_due<T: Target>(outbox: &Outbox<T>, due_after: Duration) -> Option<Tx<T>> {
    let record = later("order-1", due_after);
    let records = std::slice::from_ref(&record);
    let (tx, counts) = begin_cancel(outbox, records, &[&record], due_after).await?;
    assert_eq!(counts, [1]);
    sleep(2 * due_after).await;
    Some(tx)
}

/// Runs a case whose cancels must come before a time. `None`: they were late, and the case is run with other tables
/// and a later time.
async fn in_time<T: Target>(outbox: &Outbox<T>, case: impl AsyncFn(&Outbox<T>, Duration) -> Option<()>) {
    let [first, rest @ ..] = SHORT_MS.map(Duration::from_millis);
    let mut is_done = case(outbox, first).await.is_some();
    for due_after in rest {
        if !is_done {
            let other = Outbox::open().await.expect("the first could be opened");
            is_done = case(&other, due_after).await.is_some();
            other.erase().await;
        }
    }
    assert!(is_done, "a cancel took longer than {rest:?}");
}

pub(crate) async fn what_is_cancelled_never_becomes_due<T: Target>(outbox: &Outbox<T>) {
    in_time(outbox, async |outbox, due_after| {
        let first = later("order-1", due_after);
        let same_event = NewRecord { handler: "mail".into(), ..first.clone() };
        let other = later("order-1", due_after);
        let records = [first.clone(), same_event, other.clone()];
        let (tx, counts) = begin_cancel(outbox, &records, &[&first], due_after).await?;
        assert_eq!(counts, [2], "one for each handler");
        outbox.commit(tx).await;
        assert_eq!(cancel_alone(outbox, &first).await, 0, "it is gone");
        sleep(2 * due_after).await;
        let due = outbox.due().await;
        assert_eq!(due.iter().map(|record| record.delivery.event_id).collect::<Vec<_>>(), [other.event_id]);
        Some(())
    })
    .await;
}

pub(crate) async fn a_cancel_that_is_rolled_back_cancels_nothing<T: Target>(outbox: &Outbox<T>) {
    in_time(outbox, async |outbox, due_after| {
        let record = later("order-1", due_after);
        let records = std::slice::from_ref(&record);
        let (tx, counts) = begin_cancel(outbox, records, &[&record, &record], due_after).await?;
        assert_eq!(counts, [1, 0]);
        drop(tx);
        sleep(2 * due_after).await;
        assert_eq!(outbox.due().await.len(), 1);
        assert_eq!(cancel_alone(outbox, &record).await, 0, "it is due");
        Some(())
    })
    .await;
}

pub(crate) async fn an_event_is_cancelled_where_it_was_scheduled<T: Target>(outbox: &Outbox<T>) {
    let record = later("order-1", LONG);
    let mut tx = outbox.begin().await;
    outbox.insert(&mut tx, std::slice::from_ref(&record)).await;
    assert_eq!(cancel_event(outbox, &mut tx, &record).await, 1);
    outbox.commit(tx).await;
    assert_eq!(cancel_alone(outbox, &record).await, 0);
}

pub(crate) async fn only_what_is_not_due_and_never_tried_is_cancelled<T: Target>(outbox: &Outbox<T>) {
    let names = ["pending", "retried", "unavailable", "failed", "unroutable", "completed"];
    let records = names.map(record);
    outbox.schedule(&records).await;
    let of = outbox.ids_of(&records).await;
    let mut worker = outbox.join().await;
    let uncounted = Change::Retry { delay: LONG, error: "away".to_owned(), stop: true, counted: false };
    let fail = Change::Fail { counted: true, error: "no".to_owned(), lane: OnFailure::Block };
    worker.settle([(of[1], 0, retry_after(LONG)), (of[2], 0, uncounted), (of[3], 0, fail)]).await;
    worker.settle([(of[4], 0, Change::Unroutable), (of[5], 0, Change::Complete)]).await;
    let due = due_record("due", Due::At(SystemTime::now() - LONG));
    let elsewhere = later("order-1", LONG);
    outbox.schedule(&[due.clone(), elsewhere.clone()]).await;
    for record in records.iter().chain([&due]) {
        assert_eq!(cancel_alone(outbox, record).await, 0, "{}", record.key);
    }
    let wrong_key = NewRecord { key: "order-2".to_owned(), ..elsewhere.clone() };
    assert_eq!(cancel_alone(outbox, &wrong_key).await, 0);
    assert_eq!(cancel_alone(outbox, &record("order-1")).await, 0);
    assert_eq!(cancel_alone(outbox, &elsewhere).await, 1);
    assert_eq!(ids(&outbox.due().await).len(), 1);
}

pub(crate) async fn a_cancelled_dedup_key_is_free_again<T: Target>(outbox: &Outbox<T>) {
    let keyed = |name: &str| NewRecord { dedup_key: Some(name.to_owned()), ..later("order-1", LONG) };
    let (one, other) = (keyed("reminder-1"), keyed("reminder-2"));
    let mut tx = outbox.begin().await;
    for record in [&one, &other] {
        let dedup_key = record.dedup_key.as_ref().unwrap();
        assert!(T::Db::insert_dedup_key(&mut tx, &outbox.producer, dedup_key).await.unwrap());
        outbox.insert(&mut tx, std::slice::from_ref(record)).await;
    }
    outbox.commit(tx).await;
    let mut tx = outbox.begin().await;
    let named = |name: &str| Named::DedupKey(name.to_owned());
    assert_eq!(cancel(outbox, &mut tx, "order-2", named("reminder-1")).await, 0, "another key");
    assert_eq!(cancel(outbox, &mut tx, "order-1", named("reminder-1")).await, 1);
    assert!(T::Db::insert_dedup_key(&mut tx, &outbox.producer, "reminder-1").await.unwrap(), "at once");
    assert!(!T::Db::insert_dedup_key(&mut tx, &outbox.producer, "reminder-2").await.unwrap());
    outbox.commit(tx).await;
    assert_eq!(cancel_alone(outbox, &other).await, 1);
    let mut tx = outbox.begin().await;
    assert!(!T::Db::insert_dedup_key(&mut tx, &outbox.producer, "reminder-1").await.unwrap());
    assert!(T::Db::insert_dedup_key(&mut tx, &outbox.producer, "reminder-2").await.unwrap());
}

/// The retention of its dedup key has ended before the time of the record comes, and another event has got the key.
pub(crate) async fn a_cancel_leaves_a_dedup_key_that_another_event_has_got<T: Target>(outbox: &Outbox<T>) {
    let keyed = || NewRecord { dedup_key: Some("reminder-1".to_owned()), ..later("order-1", LONG) };
    let (one, other) = (keyed(), keyed());
    for record in [&one, &other] {
        let keys = outbox.store.purge(LONG, Duration::ZERO).await.unwrap();
        assert_eq!(keys, u64::from(record.event_id == other.event_id));
        let mut tx = outbox.begin().await;
        assert!(T::Db::insert_dedup_key(&mut tx, &outbox.producer, "reminder-1").await.unwrap());
        outbox.insert(&mut tx, std::slice::from_ref(record)).await;
        outbox.commit(tx).await;
        a_moment().await;
    }
    let mut tx = outbox.begin().await;
    assert_eq!(cancel_event(outbox, &mut tx, &one).await, 1);
    assert!(!T::Db::insert_dedup_key(&mut tx, &outbox.producer, "reminder-1").await.unwrap(), "at once");
    outbox.commit(tx).await;
    let mut tx = outbox.begin().await;
    assert!(!T::Db::insert_dedup_key(&mut tx, &outbox.producer, "reminder-1").await.unwrap());
    assert_eq!(cancel_event(outbox, &mut tx, &other).await, 1);
    assert!(T::Db::insert_dedup_key(&mut tx, &outbox.producer, "reminder-1").await.unwrap());
}

/// The time of the record comes while the cancelling transaction is open: a fetch must not see the record.
pub(crate) async fn what_is_being_cancelled_is_not_fetched<T: Target>(outbox: &Outbox<T>) {
    for commits in [true, false] {
        in_time(outbox, async |outbox, due_after| {
            let tx = cancelling_when_due(outbox, due_after).await?;
            assert!(promptly(outbox.due()).await.is_empty(), "who has it may deliver it after the commit");
            if commits {
                outbox.commit(tx).await;
                assert!(outbox.due().await.is_empty());
            } else {
                drop(tx);
                // The rollback happens when the connection returns to the pool.
                let started = Instant::now();
                while outbox.due().await.is_empty() {
                    assert!(started.elapsed().as_secs() < 60, "the rollback gives it back");
                    a_moment().await;
                }
            }
            Some(())
        })
        .await;
    }
}

pub(crate) async fn what_is_being_cancelled_hides_nothing_that_is_due<T: Target>(outbox: &Outbox<T>) {
    in_time(outbox, async |outbox, due_after| {
        let records = [due_after, due_after, due_after, 2 * due_after].map(|delay| later("order-1", delay));
        let [first, second, third, last] = &records;
        let (tx, counts) = begin_cancel(outbox, &records, &[first, second, third], due_after).await?;
        assert_eq!(counts, [1, 1, 1]);
        sleep(3 * due_after).await;
        let (found, _) =
            promptly(outbox.store.fetch_due(PartitionSet::ALL, Pick::new(&[], 2))).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].delivery.event_id, last.event_id);
        outbox.commit(tx).await;
        let (found, _) = outbox.store.fetch_due(PartitionSet::ALL, Pick::new(&[], ALL)).await.unwrap();
        assert_eq!(found.len(), 1);
        Some(())
    })
    .await;
}

pub(crate) async fn who_cancels_holds_no_calm_partition_back<T: Target>(outbox: &Outbox<T>) {
    let records = [record("order-1"), later("order-1", LONG)];
    outbox.schedule(&records).await;
    let of_cancelled = outbox.ids_of(&records[..1]).await[0] + 1;
    let worker = outbox.join().await;
    let partition = Partition::of("order-1");
    outbox.store.track_call(worker.id, partition, of_cancelled).await.unwrap();
    let mut tx = outbox.begin().await;
    assert_eq!(cancel_event(outbox, &mut tx, &records[1]).await, 1);
    promptly(outbox.store.calm(worker.id, [partition].into_iter().collect())).await.unwrap();
    drop(tx);
}

pub(crate) async fn a_second_cancel_waits_for_the_first<T: Target>(outbox: &Outbox<T>) {
    for commits in [true, false] {
        let record = later("order-1", LONG);
        outbox.schedule(std::slice::from_ref(&record)).await;
        let mut first = outbox.begin().await;
        assert_eq!(cancel_event(outbox, &mut first, &record).await, 1);
        let mut second = Box::pin(cancel_alone(outbox, &record));
        assert_waits(&mut second).await;
        if commits {
            outbox.commit(first).await;
        } else {
            drop(first);
        }
        assert_eq!(promptly(second).await, u64::from(!commits));
    }
}

/// One transaction writes at a time: a fetch waits for its end.
pub(crate) async fn a_fetch_waits_for_who_cancels<T: Target>(outbox: &Outbox<T>) {
    in_time(outbox, async |outbox, due_after| {
        let tx = cancelling_when_due(outbox, due_after).await?;
        let mut due = Box::pin(outbox.due());
        assert_waits(&mut due).await;
        outbox.commit(tx).await;
        assert!(promptly(due).await.is_empty());
        Some(())
    })
    .await;
}

pub(crate) async fn what_is_due_already_is_hidden_by_no_cancel<T: Target>(outbox: &Outbox<T>) {
    let due = due_record("order-1", Due::After(Duration::ZERO));
    outbox.schedule(std::slice::from_ref(&due)).await;
    a_moment().await;
    let mut tx = outbox.begin().await;
    assert_eq!(cancel_event(outbox, &mut tx, &due).await, 0);
    assert_eq!(outbox.due().await.len(), 1, "the transaction is still open");
    drop(tx);
}

/// The retention of its dedup key has ended before the time of the record comes.
pub(crate) async fn a_cancel_without_its_dedup_key_blocks_no_other_key<T: Target>(outbox: &Outbox<T>) {
    let record = NewRecord { dedup_key: Some("reminder-2".to_owned()), ..later("order-1", LONG) };
    outbox.schedule(std::slice::from_ref(&record)).await;
    let mut cancelling = outbox.begin().await;
    assert_eq!(cancel_event(outbox, &mut cancelling, &record).await, 1);
    for other in ["reminder-1", "reminder-3"] {
        let mut tx = outbox.begin().await;
        let inserted = promptly(T::Db::insert_dedup_key(&mut tx, &outbox.producer, other)).await;
        assert!(inserted.unwrap());
        outbox.commit(tx).await;
    }
    outbox.commit(cancelling).await;
}
