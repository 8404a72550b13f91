//! Purging many rows: in batches, each with its own commit.

use std::time::Duration;

use keylane::{Completed, database::Database, inner::StoreSettings};

use crate::{
    outbox::{Outbox, a_moment, promptly},
    target::{Server, SqlTarget},
};

/// More than two batches, and less than three.
const MANY: i64 = 5_120;

/// Inserts this many dedup keys. Keys with higher numbers are younger.
async fn insert_many<T: SqlTarget>(outbox: &Outbox<T>) {
    let digit = |place: usize| {
        format!("(SELECT partition_no AS n FROM {{outbox}}partition WHERE partition_no < {place})")
    };
    let insert = format!(
        "INSERT INTO {{outbox}}dedup (dedup_key) SELECT concat('payment-', 256 * a.n + b.n) FROM {} AS a CROSS JOIN {} AS b",
        digit(20),
        digit(256)
    );
    assert_eq!(outbox.execute(&insert).await, MANY as u64);
    a_moment().await;
}

pub(crate) async fn a_purge_takes_more_than_a_batch<T: SqlTarget>(outbox: &Outbox<T>) {
    insert_many(outbox).await;
    assert_eq!(outbox.store.purge(Duration::ZERO, Duration::from_secs(3600)).await.unwrap(), 0);
    assert_eq!(outbox.store.purge(Duration::ZERO, Duration::ZERO).await.unwrap(), MANY as u64);
}

pub(crate) async fn purging_takes_the_stopped_and_their_fence_rows<T: SqlTarget>(outbox: &Outbox<T>) {
    for _ in 0..3 {
        let worker = outbox.join().await;
        outbox.store.leave(worker.id).await.unwrap();
    }
    let alive = outbox.join().await;
    a_moment().await;
    assert_eq!(outbox.store.purge_instances(Duration::ZERO).await.unwrap(), 3);
    assert_eq!(outbox.fence_rows().await, (2, 1), "those of the living stay");
    assert!(outbox.store.beat(alive.id).await.unwrap().is_some());
}

pub(crate) async fn a_purge_of_many_dedup_keys_comes_in_batches<T: Server>(outbox: &Outbox<T>) {
    insert_many(outbox).await;
    // A transaction has the youngest row locked.
    outbox.execute("INSERT INTO {outbox}dedup (dedup_key) VALUES ('youngest')").await;
    a_moment().await;
    let mut holder = outbox.begin().await;
    let lock = outbox.sql("SELECT dedup_key FROM {outbox}dedup WHERE dedup_key = 'youngest' FOR UPDATE");
    T::execute(&mut holder, lock).await.unwrap();
    let mut left = MANY + 1;
    // On a busy machine, a batch may take longer than the first limits.
    for call_timeout in [1, 4, 16].map(Duration::from_secs) {
        let store = outbox.store_with(StoreSettings { call_timeout, ..outbox.settings(Completed::Delete) });
        promptly(store.purge(Duration::ZERO, Duration::ZERO)).await.unwrap_err();
        left = outbox.number("SELECT count(*) FROM {outbox}dedup").await;
        if left < 2_000 {
            break;
        }
    }
    assert_eq!(left, (MANY + 1) % 2_000, "what came before is gone for good");
    drop(holder);
    promptly(outbox.store.purge(Duration::ZERO, Duration::ZERO)).await.unwrap();
    assert_eq!(outbox.number("SELECT count(*) FROM {outbox}dedup").await, 0);
}

pub(crate) async fn keys_of_the_strict_order_are_purged_unless_locked<T: Server>(outbox: &Outbox<T>) {
    let keys: Vec<String> = (0..2_500).map(|n| format!("order-{n}-é'\\")).collect();
    let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    keys.sort_unstable();
    let mut tx = outbox.begin().await;
    T::Db::lock_keys(&mut tx, &outbox.producer, &keys).await.unwrap();
    outbox.commit(tx).await;
    let mut holder = outbox.begin().await;
    T::Db::lock_keys(&mut holder, &outbox.producer, &keys[7..8]).await.unwrap();
    assert_eq!(promptly(outbox.store.purge(Duration::ZERO, Duration::ZERO)).await.unwrap(), 2_499);
    // The lock still makes the next transaction of the key wait, and a purged key can be locked again.
    let mut next = outbox.begin().await;
    promptly(T::Db::lock_keys(&mut next, &outbox.producer, &keys[..7])).await.unwrap();
    crate::outbox::assert_waits(&mut T::Db::lock_keys(&mut next, &outbox.producer, &keys[7..8])).await;
    outbox.commit(holder).await;
}
