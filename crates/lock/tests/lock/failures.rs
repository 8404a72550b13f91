//! What fails on the way: an insert, a row lock, a release; and what is refused.

use std::time::Duration;

use keylane_lock::{LockClient, LockError};
use keylane_sql::{Family, SqlDatabase};
use tokio::time::{Instant, timeout};

use crate::{
    stage::{DELAY, LEASE, Stage},
    target::{PATIENCE, Target, impatient, on_each},
};

on_each!(
    an_insert_that_fails_leaves_nothing_behind,
    a_row_that_stays_locked_is_tried_again,
    a_release_that_fails_frees_the_lock_at_the_end_of_the_lease,
    names_that_the_table_does_not_take_are_refused,
    tables_of_another_version_are_refused,
);

/// Statements that make each insert of a ticket fail, and that end this.
fn trigger<T: Target>() -> (&'static str, &'static str) {
    match T::Db::DIALECT.family {
        Family::Postgres => (
            "CREATE FUNCTION {}no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$; \
             CREATE TRIGGER no BEFORE INSERT ON {}ticket FOR EACH ROW EXECUTE FUNCTION {}no()",
            "DROP TRIGGER no ON {}ticket; DROP FUNCTION {}no()",
        ),
        Family::Sqlite => (
            "CREATE TRIGGER {}no BEFORE INSERT ON {}ticket BEGIN SELECT RAISE(ABORT, 'no'); END",
            "DROP TRIGGER {}no",
        ),
        Family::MySql => (
            "CREATE TRIGGER {}no BEFORE INSERT ON {}ticket FOR EACH ROW SIGNAL SQLSTATE '45000'",
            "DROP TRIGGER {}no",
        ),
    }
}

async fn an_insert_that_fails_leaves_nothing_behind<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let (make, end) = trigger::<T>();
    stage.execute(make).await;
    let refused = stage.locks.lock("one").await;
    match refused {
        Err(LockError::Database { call: "queue", retryable: false, .. }) => {}
        other => panic!("{other:?}"),
    }
    stage.execute(end).await;
    assert_eq!(stage.number("SELECT count(*) FROM {}ticket").await, 0);
    let guard = timeout(Duration::from_secs(5), stage.locks.lock("one")).await.unwrap().unwrap();
    guard.release().await.unwrap();
    stage.end().await;
}

async fn a_row_that_stays_locked_is_tried_again<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let other = stage.other().await;
    // Each of its connections.
    let mut conns = Vec::new();
    for _ in 0..crate::target::CONNECTIONS {
        let mut conn = other.locks.pool().acquire().await.unwrap();
        T::Db::script(&mut conn, impatient::<T::Db>()).await.unwrap();
        conns.push(conn);
    }
    drop(conns);
    let mut tx = stage.begin().await;
    stage.locks.lock_in(&mut tx, "one").await.unwrap();
    let refused = other.locks.request("one").timeout(Duration::from_millis(300)).lock().await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{refused:?}");
    let waiter = tokio::spawn({
        let locks = other.locks.clone();
        async move { locks.lock("one").await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(!waiter.is_finished());
    tx.commit().await.unwrap();
    timeout(PATIENCE, waiter).await.unwrap().unwrap().release().await.unwrap();
    stage.queued("one", 0).await;
    stage.end().await;
}

async fn a_release_that_fails_frees_the_lock_at_the_end_of_the_lease<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let cut_off = stage.other().await;
    let guard = cut_off.locks.lock("one").await.unwrap();
    cut_off.locks.pool().close().await;
    let token = guard.token();
    let began = Instant::now();
    let failed = guard.release().await;
    assert!(matches!(failed, Err(LockError::Database { .. })), "{failed:?}");
    let next = stage.locks.lock("one").await.unwrap();
    assert!(next.token() > token && began.elapsed() < LEASE + DELAY);
    next.release().await.unwrap();
    stage.end().await;
}

async fn names_that_the_table_does_not_take_are_refused<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let long = "x".repeat(256);
    for resource in ["", "a\0b", long.as_str()] {
        let refused = stage.locks.lock(resource).await;
        assert!(matches!(&refused, Err(LockError::BadText { limit: 255, .. })), "{refused:?}");
        let owned = stage.locks.request("one").owner(resource).lock().await;
        assert!(matches!(&owned, Err(LockError::BadText { what: "owner", limit: 100, .. })), "{owned:?}");
    }
    stage.locks.lock(&"x".repeat(255)).await.unwrap().release().await.unwrap();
    let builder = || LockClient::builder(stage.locks.pool().clone());
    assert!(matches!(builder().table_prefix("a;b").build(), Err(LockError::Name(_))));
    let short = builder().lease(Duration::from_millis(999)).build();
    assert!(matches!(short, Err(LockError::Lease { .. })), "{short:?}");
    stage.end().await;
}

async fn tables_of_another_version_are_refused<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    stage.locks.migrate().await.unwrap();
    stage.execute("UPDATE {}meta SET schema_version = 2").await;
    let refused = stage.locks.check().await;
    assert!(matches!(refused, Err(LockError::Schema { found: 2, needed: 1 })), "{refused:?}");
    let absent = LockClient::builder(stage.locks.pool().clone()).table_prefix("no_such_").build().unwrap();
    assert!(matches!(absent.check().await, Err(LockError::Schema { found: 0, .. })));
    stage.end().await;
}
