//! Transactions that conflict on a server, and the classes of the errors.

use std::time::Duration;

use keylane::{
    Completed, StoreError,
    database::{Database, ErrorClass},
    inner::{Change, Resolution, SettleError, StoreSettings},
    partition::PartitionSet,
};

use crate::{
    outbox::{Outbox, promptly, record, settlement, stop},
    target::{Server, SqliteTarget, Tx},
};

async fn insert<T: Server>(outbox: &Outbox<T>, tx: &mut Tx<T>, key: &str) -> Result<bool, StoreError> {
    T::Db::insert_dedup_key(tx, &outbox.producer, key).await
}

async fn lock<T: Server>(outbox: &Outbox<T>, tx: &mut Tx<T>, key: &str) -> Result<(), StoreError> {
    T::Db::lock_keys(tx, &outbox.producer, &[key]).await
}

/// Exactly one of the two is the victim, with an error to retry.
fn one_is_told_to_try_again<A, B>(one: Result<A, StoreError>, other: Result<B, StoreError>) {
    let errors: Vec<StoreError> = [one.err(), other.err()].into_iter().flatten().collect();
    assert_eq!(errors.len(), 1, "one deadlock, one victim: {errors:?}");
    assert_eq!(errors[0].class, ErrorClass::Retry, "{}", errors[0].chain());
}

pub(crate) async fn a_deadlock_of_two_rows_is_told_to_try_again<T: Server>(outbox: &Outbox<T>) {
    let (mut one, mut other) = (outbox.begin().await, outbox.begin().await);
    insert(outbox, &mut one, "payment-1").await.unwrap();
    insert(outbox, &mut other, "payment-2").await.unwrap();
    // The victim must end its transaction, or the other one waits on.
    let crossed = |mut tx: Tx<T>, key: &'static str| async move { insert(outbox, &mut tx, key).await };
    let (one, other) =
        promptly(async { tokio::join!(crossed(one, "payment-2"), crossed(other, "payment-1")) }).await;
    one_is_told_to_try_again(one, other);
}

pub(crate) async fn a_deadlock_of_strict_keys_is_told_to_try_again<T: Server>(outbox: &Outbox<T>) {
    let (mut one, mut other) = (outbox.begin().await, outbox.begin().await);
    lock(outbox, &mut one, "order-1").await.unwrap();
    lock(outbox, &mut other, "order-2").await.unwrap();
    let crossed = |mut tx: Tx<T>, key: &'static str| async move { lock(outbox, &mut tx, key).await };
    let (one, other) =
        promptly(async { tokio::join!(crossed(one, "order-2"), crossed(other, "order-1")) }).await;
    one_is_told_to_try_again(one, other);
}

pub(crate) async fn a_lock_that_is_not_granted_is_told_to_try_again<T: Server>(outbox: &Outbox<T>) {
    let mut holder = outbox.begin().await;
    lock(outbox, &mut holder, "order-1").await.unwrap();
    insert(outbox, &mut holder, "payment-1").await.unwrap();
    for strict in [true, false] {
        let mut waiting = outbox.begin().await;
        T::execute(&mut waiting, T::WAIT_ONE_SECOND.to_owned()).await.unwrap();
        let refused = match strict {
            true => promptly(lock(outbox, &mut waiting, "order-1")).await.unwrap_err(),
            false => promptly(insert(outbox, &mut waiting, "payment-1")).await.unwrap_err(),
        };
        assert_eq!(refused.class, ErrorClass::Retry, "{}", refused.chain());
    }
}

pub(crate) async fn a_settle_that_waits_too_long_gives_up_and_is_not_written<T: Server>(outbox: &Outbox<T>) {
    // The limit of the client comes first, then that of a server that counts whole seconds.
    for call_timeout in [Duration::from_millis(900), Duration::from_millis(1_900)] {
        let id = outbox.schedule_keys(&["order-1"]).await[0];
        let worker = outbox.join().await;
        let mut holder = outbox.begin().await;
        let lock = outbox.sql(&format!("SELECT id FROM {{outbox}}record WHERE id = {id} FOR UPDATE"));
        T::execute(&mut holder, lock).await.unwrap();
        let store = outbox.store_with(StoreSettings { call_timeout, ..outbox.settings(Completed::Delete) });
        let settled = promptly(store.settle(worker.fence(), &[settlement((id, 0, Change::Complete))])).await;
        match settled {
            Err(SettleError::Store(error)) => {
                assert!(
                    matches!(error.class, ErrorClass::Retry | ErrorClass::Reconnect),
                    "{}",
                    error.chain()
                );
            }
            other => panic!("{other:?}"),
        }
        drop(holder);
        // Whatever the server still does with the lost statement, this resolution is final. As in a settler, the
        // same store resolves: a connection with a part of the settle left open would answer for itself.
        let resolve = async {
            loop {
                if let Ok(fate) = store.resolve(worker.fence()).await {
                    break fate;
                }
            }
        };
        let fate = promptly(resolve).await;
        let left = outbox.pending_ids("order-1").await;
        assert_eq!(fate == Resolution::Applied, !left.contains(&id), "{fate:?}, {left:?} left");
        crate::outbox::a_moment().await;
        assert_eq!(outbox.pending_ids("order-1").await, left);
    }
}

pub(crate) async fn a_cancelled_call_does_not_poison_the_next<T: Server>(outbox: &Outbox<T>) {
    let new = outbox.schedule_keys(&["order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    worker.settle([(new[0], 0, stop()), (new[1], 0, Change::Hold { behind: new[0] })]).await;
    let mut holder = outbox.begin().await;
    let lock = outbox.sql(&format!("SELECT id FROM {{outbox}}record WHERE id = {} FOR UPDATE", new[0]));
    T::execute(&mut holder, lock).await.unwrap();
    let lost = [settlement((new[0], 1, Change::CompleteAndResume))];
    for _ in 0..3 {
        let settle = worker.store.settle(worker.fence(), &lost);
        assert!(tokio::time::timeout(Duration::from_millis(200), settle).await.is_err());
    }
    drop(holder);
    // One of the cut-off statements may have been written once the row was free: then its whole settle was.
    let fate = promptly(outbox.store.resolve(worker.fence())).await.unwrap();
    match fate {
        Resolution::Closed => panic!("nobody has evicted it"),
        Resolution::Applied => worker.counter = worker.fence().moved().counter,
        Resolution::NotApplied => worker.counter = worker.fence().invalidated().counter,
    }
    let goes_on = outbox.store.stops(PartitionSet::ALL).await.unwrap().is_empty();
    let returned = outbox.pending_ids("order-1").await == new[1..];
    assert_eq!([goes_on, returned], [fate == Resolution::Applied; 2], "{fate:?}");
    let rest = outbox.schedule_keys(&["order-2"]).await[0];
    assert_eq!(promptly(worker.settle([(rest, 0, Change::Complete)])).await.applied, 1);
}

pub(crate) async fn open_user_transactions_do_not_hold_back_the_cluster<T: Server>(outbox: &Outbox<T>) {
    let mut open = outbox.begin().await;
    outbox.insert(&mut open, &[record("order-1")]).await;
    let worker = promptly(outbox.join()).await;
    assert!(promptly(outbox.store.beat(worker.id)).await.unwrap().is_some());
    let wanted = [(crate::outbox::partition(0), keylane::admin::Generation(0))];
    assert_eq!(promptly(outbox.store.claim(worker.id, &wanted)).await.unwrap().len(), 1);
    assert!(promptly(outbox.store.evict(worker.id, Some(1))).await.unwrap());
    outbox.commit(open).await;
}

pub(crate) async fn a_key_that_is_too_long_is_the_records_fault<T: Server>(outbox: &Outbox<T>) {
    // `schedule` refuses the value earlier. This case is for rows that are written by SQL.
    let mut tx = outbox.begin().await;
    let refused = T::Db::insert(&mut tx, &outbox.producer, &[record(&"k".repeat(256))]).await.unwrap_err();
    assert_eq!(refused.class, ErrorClass::Record, "{}", refused.chain());
}

/// SQLite has one writer at a time: a writer that waits too long gets an error to retry.
pub(crate) async fn a_busy_file_is_told_to_try_again(outbox: &Outbox<SqliteTarget>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let worker = outbox.join().await;
    let mut writer = outbox.begin().await;
    outbox.insert(&mut writer, &[record("order-1")]).await;
    let call_timeout = Duration::from_secs(1);
    let store = outbox.store_with(StoreSettings { call_timeout, ..outbox.settings(Completed::Delete) });
    match store.settle(worker.fence(), &[settlement((id, 0, Change::Complete))]).await {
        Err(SettleError::Store(error)) => assert_eq!(error.class, ErrorClass::Retry, "{}", error.chain()),
        other => panic!("{other:?}"),
    }
    // Readers never wait for a writer.
    assert_eq!(promptly(outbox.pending()).await.len(), 1);
    outbox.commit(writer).await;
    let done = store.settle(worker.fence(), &[settlement((id, 0, Change::Complete))]).await.unwrap();
    assert_eq!(done.applied, 1);
}

/// Each connection to such a database would open a separate one.
pub(crate) async fn a_database_in_memory_is_refused(outbox: &Outbox<SqliteTarget>) {
    for address in ["sqlite::memory:", "sqlite://:memory:", "sqlite://?mode=memory"] {
        let pool = sqlx::SqlitePool::connect(address).await.unwrap();
        let refused = <sqlx::Sqlite as Database>::open(&pool, outbox.settings(Completed::Delete));
        assert_eq!(refused.err(), Some(keylane::database::OpenError::InMemory), "{address}");
    }
}
