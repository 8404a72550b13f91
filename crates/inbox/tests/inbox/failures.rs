//! Work that fails, is dropped, panics, or ends the transaction.

use std::{future::pending, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use keylane_inbox::{Once, OnceError};
use keylane_sql::{Family, SqlDatabase};

use crate::{
    stage::Stage,
    target::{Connection, Target, on_each},
};

on_each!(
    a_failure_leaves_no_effect_and_may_run_again,
    a_caller_who_commits_after_a_failure_commits_no_half_effect,
    work_that_ends_its_transaction_is_found_out,
);

async fn a_failure_leaves_no_effect_and_may_run_again<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    for attempt in 1..=2 {
        let failed = stage.inbox.run("event", "group", async |tx| {
            stage.affect(tx, "event").await.unwrap();
            Err::<(), _>("no such account\0".repeat(100))
        });
        assert!(matches!(failed.await, Err(OnceError::Work(_))));
        assert_eq!(stage.effects_of("event").await, 0);
        let noted = format!("status = 'FAILED' AND attempts = {attempt} AND length(error) = 1000");
        assert_eq!(stage.messages(&noted).await, 1);
    }
    let done = stage.inbox.run("event", "group", async |tx| stage.affect(tx, "event").await).await.unwrap();
    assert_eq!((done, stage.effects_of("event").await), (Once::Done(()), 1));
    assert_eq!(stage.messages("status = 'SUCCESS' AND attempts = 3 AND error IS NULL").await, 1);
    // A late word about it changes nothing.
    stage.inbox.write_failure("event", "group", "late", Duration::ZERO).await.unwrap();
    assert_eq!(stage.messages("status = 'SUCCESS' AND attempts = 3").await, 1);
    stage.end().await;
}

async fn a_caller_who_commits_after_a_failure_commits_no_half_effect<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let mut tx = stage.inbox.pool().begin().await.unwrap();
    stage.affect(&mut tx, "mine").await.unwrap();
    let failing = async |tx: &mut Connection<T>| {
        stage.affect(tx, "event").await.unwrap();
        Err::<(), _>("no")
    };
    assert!(matches!(stage.inbox.once(&mut tx, "event", "group", failing).await, Err(OnceError::Work("no"))));

    let stuck = stage.inbox.once(&mut tx, "event", "group", async |tx: &mut Connection<T>| {
        stage.affect(tx, "event").await.unwrap();
        pending::<Result<(), &str>>().await
    });
    assert!(tokio::time::timeout(Duration::from_millis(200), stuck).await.is_err());

    let panics = stage.inbox.once(&mut tx, "event", "group", async |tx: &mut Connection<T>| {
        stage.affect(tx, "event").await.unwrap();
        std::panic::resume_unwind(Box::new("a bug"));
        #[expect(unreachable_code, reason = "names the error")]
        Ok::<(), &str>(())
    });
    assert!(AssertUnwindSafe(panics).catch_unwind().await.is_err());
    tx.commit().await.unwrap();
    assert_eq!((stage.effects_of("mine").await, stage.effects_of("event").await), (1, 0));
    assert_eq!(stage.messages("1 = 1").await, 0);
    stage.end().await;
}

async fn work_that_ends_its_transaction_is_found_out<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let ends = match T::Db::DIALECT.family {
        Family::MySql => format!("CREATE TABLE {0}ddl (id INT); DROP TABLE {0}ddl", stage.prefix),
        Family::Postgres | Family::Sqlite => "COMMIT".to_owned(),
    };
    for again in ["", "; BEGIN", "; BEGIN; SAVEPOINT sp"] {
        let work = async |tx: &mut Connection<T>| T::Db::script(tx, &format!("{ends}{again}")).await;
        let ran = stage.inbox.run("event", "group", work).await;
        assert!(matches!(ran, Err(OnceError::Ended)), "run, {again:?}: {ran:?}");
        stage.execute("DELETE FROM {}message").await;

        // Out of the pool, because nobody knows what is open on it afterwards.
        let mut conn = stage.inbox.pool().acquire().await.unwrap().detach();
        let mut tx = sqlx::Connection::begin(&mut conn).await.unwrap();
        let ran = stage.inbox.once(&mut tx, "event", "group", work).await;
        assert!(matches!(ran, Err(OnceError::Ended)), "once, {again:?}: {ran:?}");
        drop(tx.rollback().await);
        drop(conn);
        assert_eq!(stage.messages("status = 'SUCCESS'").await, 0);
        stage.execute("DELETE FROM {}message").await;
    }
    let ran = stage.inbox.run("event", "group", async |tx: &mut Connection<T>| {
        stage.affect(tx, "event").await?;
        // A transaction within that of the message, which nobody ends.
        std::mem::forget(sqlx::Connection::begin(tx).await?);
        Ok::<_, sqlx::Error>(())
    });
    let ran = ran.await;
    assert!(matches!(ran, Err(OnceError::Ended)), "{ran:?}");
    assert_eq!((stage.effects_of("event").await, stage.messages("status = 'SUCCESS'").await), (0, 0));
    stage.end().await;
}
