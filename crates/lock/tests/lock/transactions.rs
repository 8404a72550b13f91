//! Locks that last until the caller's own transaction ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane_lock::LockError;
use keylane_sql::SqlDatabase;
use tokio::task::JoinSet;

use crate::{
    stage::{LONG, Stage},
    target::{OnMariaDb, OnMySql, OnPostgres, PATIENCE, Target, on_each},
};

on_each!(
    a_lock_in_a_transaction_ends_with_it,
    transactions_never_overlap_under_any_level_of_isolation,
    a_lock_needs_a_transaction,
);

const SHORT: Duration = Duration::from_millis(200);

async fn a_lock_in_a_transaction_ends_with_it<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let mut last = 0;
    for commits in [true, false] {
        let mut tx = stage.begin().await;
        let token = stage.locks.lock_in(&mut tx, "one").await.unwrap();
        assert!(token >= last);
        let has_ended = Arc::new(AtomicBool::new(false));
        let (locks, ended) = (stage.locks.clone(), Arc::clone(&has_ended));
        let waiter = tokio::spawn(async move {
            let guard = locks.lock("one").await.unwrap();
            (guard, ended.load(SeqCst))
        });
        tokio::time::sleep(SHORT).await;
        has_ended.store(true, SeqCst);
        if commits {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        let (guard, came_after_the_end) = waiter.await.unwrap();
        assert!(came_after_the_end && guard.token() > token, "{} {token}", guard.token());
        last = guard.token();
        guard.release().await.unwrap();
    }
    stage.end().await;
}

/// Each adds one to a number that it reads before it writes.
async fn transactions_never_overlap_under_any_level_of_isolation<T: Target>() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let Some(stage) = Stage::<T>::with(level, LONG).await else { return };
        let stage = Arc::new(stage);
        stage.execute("INSERT INTO {}register VALUES ('one', 0, 0)").await;
        let is_inside = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for task in 0..4 {
            let (stage, is_inside) = (Arc::clone(&stage), Arc::clone(&is_inside));
            tasks.spawn(async move {
                for round in 0..8 {
                    if (task + round) % 3 == 0 {
                        let guard = stage.locks.lock("one").await.unwrap();
                        assert!(!is_inside.swap(true, SeqCst));
                        stage.execute("UPDATE {}register SET value = value + 1").await;
                        assert!(is_inside.swap(false, SeqCst));
                        guard.release().await.unwrap();
                        continue;
                    }
                    while !added_in_a_transaction(&stage, &is_inside).await {}
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(stage.number("SELECT value FROM {}register").await, 32);
        Arc::into_inner(stage).unwrap().end().await;
    }
}

/// `false` if the database wants the transaction repeated.
async fn added_in_a_transaction<T: Target>(stage: &Stage<T>, is_inside: &AtomicBool) -> bool {
    let mut tx = stage.begin().await;
    match stage.locks.lock_in(&mut tx, "one").await {
        Ok(_) => {}
        Err(error) if error.is_retryable() => {
            tx.rollback().await.unwrap();
            return false;
        }
        Err(error) => panic!("{error}"),
    }
    assert!(!is_inside.swap(true, SeqCst), "two at a time");
    let add = format!("UPDATE {}register SET value = value + 1", stage.prefix);
    T::Db::script(&mut tx, &add).await.unwrap();
    tokio::task::yield_now().await;
    assert!(is_inside.swap(false, SeqCst));
    tx.commit().await.unwrap();
    true
}

async fn a_lock_needs_a_transaction<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let mut conn = stage.locks.pool().acquire().await.unwrap();
    let refused = stage.locks.lock_in(&mut conn, "one").await;
    assert!(matches!(refused, Err(LockError::NoTransaction)), "{refused:?}");
    drop(conn);
    assert_eq!(stage.number("SELECT count(*) FROM {}resource").await, 0);
    stage.end().await;
}

async fn a_transaction_waits_for_those_who_came_before<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let stage = Arc::new(stage);
    let holder = stage.locks.lock("one").await.unwrap();
    let second = tokio::spawn({
        let other = stage.other().await;
        async move { other.locks.lock("one").await.unwrap() }
    });
    stage.queued("one", 2).await;
    let third = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move {
            let mut tx = stage.begin().await;
            let token = stage.locks.lock_in(&mut tx, "one").await.unwrap();
            (tx, token)
        }
    });
    tokio::time::sleep(SHORT).await;
    let first_token = holder.token();
    holder.release().await.unwrap();
    let second = second.await.unwrap();
    tokio::time::sleep(SHORT).await;
    assert!(!third.is_finished(), "the second still holds the lock");
    let second_token = second.token();
    second.release().await.unwrap();
    let (tx, third_token) = tokio::time::timeout(PATIENCE, third).await.unwrap().unwrap();
    assert!(first_token < second_token && second_token < third_token);
    tx.commit().await.unwrap();
    Arc::into_inner(stage).unwrap().end().await;
}

/// Its snapshot would hide what the holder writes while it waits.
#[tokio::test]
async fn postgres_a_snapshot_does_not_wait_for_a_holder() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let stage = Stage::<OnPostgres>::with(level, LONG).await.unwrap();
        let holder = stage.locks.lock("one").await.unwrap();
        let mut tx = stage.begin().await;
        let refused = stage.locks.lock_in(&mut tx, "one").await;
        assert!(
            matches!(&refused, Err(error @ LockError::Held { .. }) if error.is_retryable()),
            "{refused:?}"
        );
        tx.rollback().await.unwrap();
        holder.release().await.unwrap();
        let mut tx = stage.begin().await;
        stage.locks.lock_in(&mut tx, "one").await.unwrap();
        tx.commit().await.unwrap();
        stage.end().await;
    }
}

#[tokio::test]
async fn postgres_a_transaction_waits_for_those_who_came_before() {
    a_transaction_waits_for_those_who_came_before::<OnPostgres>().await;
}

#[tokio::test]
async fn mariadb_a_transaction_waits_for_those_who_came_before() {
    a_transaction_waits_for_those_who_came_before::<OnMariaDb>().await;
}

#[tokio::test]
async fn mysql_a_transaction_waits_for_those_who_came_before() {
    a_transaction_waits_for_those_who_came_before::<OnMySql>().await;
}

/// SQLite has one writer: who waited within a transaction would keep the holder from its release.
#[tokio::test]
async fn sqlite_a_transaction_does_not_wait_for_a_holder() {
    let stage = Stage::<crate::target::OnSqlite>::new().await.unwrap();
    let holder = stage.locks.lock("one").await.unwrap();
    let mut tx = stage.begin().await;
    let refused = stage.locks.lock_in(&mut tx, "one").await;
    assert!(matches!(&refused, Err(error @ LockError::Held { .. }) if error.is_retryable()), "{refused:?}");
    tx.rollback().await.unwrap();
    holder.release().await.unwrap();
    // Nor for one that has expired.
    let dead = stage.locks.lock("one").await.unwrap();
    stage.execute("UPDATE {}ticket SET expires_at = 1577836800000000").await;
    let mut tx = stage.begin().await;
    assert!(stage.locks.lock_in(&mut tx, "one").await.unwrap() > dead.token());
    tx.commit().await.unwrap();
    assert!(matches!(dead.release().await, Err(LockError::Lost { .. })));
    stage.end().await;
}
