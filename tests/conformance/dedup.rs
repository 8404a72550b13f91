//! Dedup keys: inserted once, in the user's transaction.

use std::time::Duration;

use keylane::database::Database;

use crate::{
    outbox::{Outbox, a_moment, assert_waits, record},
    target::{Connection, Target},
};

async fn insert<T: Target>(outbox: &Outbox<T>, conn: &mut Connection<T>, key: &str) -> bool {
    T::Db::insert_dedup_key(conn, &outbox.producer, key).await.unwrap()
}

/// Inserts a key in a separate transaction.
async fn insert_alone<T: Target>(outbox: &Outbox<T>, key: &str) -> bool {
    let mut tx = outbox.begin().await;
    let inserted = insert(outbox, &mut tx, key).await;
    outbox.commit(tx).await;
    inserted
}

pub(crate) async fn a_dedup_key_is_inserted_once<T: Target>(outbox: &Outbox<T>) {
    assert!(insert_alone(outbox, "payment-1").await);
    assert!(!insert_alone(outbox, "payment-1").await);
    assert!(insert_alone(outbox, "payment-2").await);
}

pub(crate) async fn a_dedup_key_is_inserted_once_in_a_transaction<T: Target>(outbox: &Outbox<T>) {
    let mut tx = outbox.begin().await;
    assert!(insert(outbox, &mut tx, "payment-1").await);
    assert!(!insert(outbox, &mut tx, "payment-1").await);
    // The transaction can go on after the second call.
    outbox.insert(&mut tx, &[record("order-1")]).await;
    outbox.commit(tx).await;
    assert_eq!(outbox.pending().await.len(), 1);
}

pub(crate) async fn a_dedup_key_is_rolled_back_with_its_transaction<T: Target>(outbox: &Outbox<T>) {
    let mut tx = outbox.begin().await;
    assert!(insert(outbox, &mut tx, "payment-1").await);
    drop(tx);
    assert!(insert_alone(outbox, "payment-1").await);
}

pub(crate) async fn dedup_keys_differ_in_case_and_blanks<T: Target>(outbox: &Outbox<T>) {
    for key in ["p", "P", "p ", " p", "é", "e\u{301}"] {
        assert!(insert_alone(outbox, key).await, "{key:?} was taken for another");
    }
}

pub(crate) async fn a_dedup_key_of_255_bytes_is_inserted_once<T: Target>(outbox: &Outbox<T>) {
    let (one, other) = ("🛩".repeat(63) + "abc", "🛩".repeat(63) + "abd");
    assert!(insert_alone(outbox, &one).await);
    assert!(!insert_alone(outbox, &one).await);
    assert!(insert_alone(outbox, &other).await);
}

pub(crate) async fn a_second_dedup_key_waits_for_the_first_to_commit<T: Target>(outbox: &Outbox<T>) {
    let mut first = outbox.begin().await;
    assert!(insert(outbox, &mut first, "payment-1").await);
    let mut second = Box::pin(insert_alone(outbox, "payment-1"));
    assert_waits(&mut second).await;
    outbox.commit(first).await;
    assert!(!second.await);
}

pub(crate) async fn a_second_dedup_key_is_inserted_if_the_first_rolls_back<T: Target>(outbox: &Outbox<T>) {
    let mut first = outbox.begin().await;
    assert!(insert(outbox, &mut first, "payment-1").await);
    let mut second = Box::pin(insert_alone(outbox, "payment-1"));
    assert_waits(&mut second).await;
    drop(first);
    assert!(second.await);
}

pub(crate) async fn dedup_keys_are_purged_by_their_own_age<T: Target>(outbox: &Outbox<T>) {
    let hour = Duration::from_secs(3600);
    assert!(insert_alone(outbox, "payment-1").await);
    assert!(insert_alone(outbox, "payment-2").await);
    a_moment().await;
    assert_eq!(outbox.store.purge(Duration::ZERO, hour).await.unwrap(), 0);
    assert!(!insert_alone(outbox, "payment-1").await);
    assert_eq!(outbox.store.purge(hour, Duration::ZERO).await.unwrap(), 2);
    assert!(insert_alone(outbox, "payment-1").await);
}
