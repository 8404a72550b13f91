//! The strict order level: ids of one key follow its commits.

use keylane::{RecordId, database::Database};

use crate::{
    outbox::{Outbox, assert_waits, promptly, record},
    target::{Connection, Target, Tx},
};

async fn lock<T: Target>(outbox: &Outbox<T>, conn: &mut Connection<T>, keys: &[&str]) {
    T::Db::lock_keys(conn, &outbox.producer, keys).await.unwrap();
}

/// Locks a key and schedules a record of it.
async fn open<T: Target>(outbox: &Outbox<T>, key: &str) -> Tx<T> {
    let mut tx = outbox.begin().await;
    lock(outbox, &mut tx, &[key]).await;
    outbox.insert(&mut tx, &[record(key)]).await;
    tx
}

async fn schedule<T: Target>(outbox: &Outbox<T>, key: &str) {
    let tx = open(outbox, key).await;
    outbox.commit(tx).await;
}

pub(crate) async fn strict_makes_the_second_of_a_key_wait<T: Target>(outbox: &Outbox<T>) {
    let first = open(outbox, "order-1").await;
    let mut second = Box::pin(schedule(outbox, "order-1"));
    assert_waits(&mut second).await;
    assert!(outbox.pending().await.is_empty());
    outbox.commit(first).await;
    let before: Vec<RecordId> = outbox.pending_ids("order-1").await;
    promptly(second).await;
    let after = outbox.pending_ids("order-1").await;
    assert_eq!(after.len(), 2);
    assert!(before.is_empty() || before == after[..1], "the second has the lower id");
}

pub(crate) async fn strict_lets_the_second_go_on_after_a_rollback<T: Target>(outbox: &Outbox<T>) {
    let first = open(outbox, "order-1").await;
    let mut second = Box::pin(schedule(outbox, "order-1"));
    assert_waits(&mut second).await;
    drop(first);
    promptly(second).await;
    assert_eq!(outbox.pending().await.len(), 1);
}

pub(crate) async fn strict_does_not_make_other_keys_wait<T: Target>(outbox: &Outbox<T>) {
    let first = open(outbox, "order-1").await;
    for key in ["order-2", "Order-1", "order-1 "] {
        promptly(schedule(outbox, key)).await;
    }
    outbox.commit(first).await;
    assert_eq!(outbox.pending().await.len(), 4);
}

pub(crate) async fn strict_keeps_outboxes_apart<T: Target>(outbox: &Outbox<T>) {
    let other = outbox.beside();
    other.store.migrate().await.unwrap();
    let first = open(outbox, "order-1").await;
    promptly(schedule(&other, "order-1")).await;
    outbox.commit(first).await;
    assert_eq!(other.pending().await.len(), 1);
}

pub(crate) async fn strict_locks_a_key_twice_in_a_transaction<T: Target>(outbox: &Outbox<T>) {
    let mut tx = outbox.begin().await;
    lock(outbox, &mut tx, &["order-1"]).await;
    promptly(lock(outbox, &mut tx, &["order-1", "order-2"])).await;
    outbox.insert(&mut tx, &[record("order-1"), record("order-2")]).await;
    outbox.commit(tx).await;
    assert_eq!(outbox.pending().await.len(), 2);
}

pub(crate) async fn strict_locks_a_thousand_keys<T: Target>(outbox: &Outbox<T>) {
    let mut keys: Vec<String> = (0..1_000).map(|n| format!("order-{n}")).collect();
    keys.sort_unstable();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for _ in 0..2 {
        let mut tx = outbox.begin().await;
        lock(outbox, &mut tx, &keys).await;
        outbox.commit(tx).await;
    }
}

pub(crate) async fn strict_transactions_that_overlap_come_one_after_another<T: Target>(outbox: &Outbox<T>) {
    let keys = ["order-1", "order-2", "order-3"];
    let one_of = |some: &'static [usize]| async move {
        for _ in 0..5 {
            let mut tx = outbox.begin().await;
            let some: Vec<&str> = some.iter().map(|n| keys[*n]).collect();
            lock(outbox, &mut tx, &some).await;
            outbox.insert(&mut tx, &some.iter().map(|key| record(key)).collect::<Vec<_>>()).await;
            outbox.commit(tx).await;
        }
    };
    tokio::join!(one_of(&[0, 1]), one_of(&[1, 2]), one_of(&[0, 2]));
    assert_eq!(outbox.pending().await.len(), 30);
}
