//! Commits of one process told to another by the database. Polls are further apart than a case may take.

use std::time::Duration;

use keylane::{Config, Outbox, Signal};
use sqlx::Row;

use crate::{
    ledger::{Ledger, dealt, placed},
    recorder::eventually,
    stage::{Stage, until_empty},
    target::PostgresTarget,
};

type PgStage = Stage<PostgresTarget>;

fn config(stage: &PgStage) -> Config {
    let mut config = stage.config.clone();
    config.delivery.poll_interval = Duration::from_secs(300);
    assert!(config.database.notifications, "the default");
    config
}

/// A process that only schedules: its commits wake no worker of its own.
async fn producer(stage: &PgStage) -> Outbox<sqlx::Postgres> {
    stage.builder().await.config(config(stage)).build().await.unwrap()
}

/// The connections that listen on the channel of these tables.
async fn listeners(stage: &PgStage) -> Vec<i32> {
    let sql = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN \"keylane_%' AND datname = current_database()
               AND application_name = 'keylane'";
    let rows = sqlx::query(sql).fetch_all(&stage.pool).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_commit_of_another_process_is_told_whatever_becomes_of_the_connection() {
    let stage = PgStage::open().await.unwrap();
    let ledger = Ledger::default();
    let before = listeners(&stage).await;
    let worker = stage.builder().await.config(config(&stage)).handler(ledger.keeper("bookkeeper"));
    let worker = worker.build().await.unwrap();
    let running = worker.start().await.unwrap();
    let producer = producer(&stage).await;
    for (round, events) in
        [dealt(10, 1), vec![placed("order-1", 1)], vec![placed("order-1", 2)]].iter().enumerate()
    {
        producer.transaction(async |tx| producer.schedule_all(tx, events).await.map(drop)).await.unwrap();
        ledger.until_done([10, 11, 12][round]).await;
    }
    // Its connection is cut: what is committed while nobody listens is found when it listens again.
    for number in 3..=5 {
        let pid = eventually("a listener", async || {
            listeners(&stage).await.into_iter().find(|pid| !before.contains(pid))
        })
        .await;
        sqlx::query("SELECT pg_terminate_backend($1)").bind(pid).execute(&stage.pool).await.unwrap();
        let event = placed("order-1", number);
        producer.transaction(async |tx| producer.schedule(tx, &event).await.map(drop)).await.unwrap();
        ledger.until_done(number as usize + 10).await;
    }
    until_empty(&worker).await;
    assert_eq!(ledger.done_of("order-1"), [1, 2, 3, 4, 5]);
    running.shutdown().await;
    stage.erase().await;
}

/// In a database of its own, where nobody may notify: the poll finds what is committed, and nothing is said twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_where_nothing_can_be_notified_polls_go_on_alone() {
    let stage = PgStage::bare().await.unwrap();
    let name = stage.tables.schema().unwrap().to_owned();
    let run = async |sql: String| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&stage.pool).await.unwrap();
    run(format!("CREATE ROLE {name} LOGIN")).await;
    run(format!("CREATE DATABASE {name} OWNER {name}")).await;
    let options = (*stage.pool.connect_options()).clone().database(&name);
    let revoke = "REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC";
    let owner = sqlx::PgPool::connect_with(options.clone()).await.unwrap();
    sqlx::raw_sql(revoke).execute(&owner).await.unwrap();
    owner.close().await;
    let pool = sqlx::PgPool::connect_with(options.username(&name)).await.unwrap();
    let ledger = Ledger::default();
    let builder = Outbox::builder(pool.clone()).config(stage.config.clone()).observer(stage.signals.clone());
    let outbox = builder.handler(ledger.keeper("bookkeeper")).build().await.unwrap();
    outbox.migrate().await.unwrap();
    let running = outbox.start().await.unwrap();
    let absent = |signal: &Signal| match signal {
        Signal::NotificationsAbsent { error } => Some(error.clone()),
        _ => None,
    };
    let error = stage.signals.first("the absence", absent).await;
    assert!(error.contains("permission denied for function pg_notify"), "{error}");
    for number in 1..=3 {
        let event = placed("order-1", number);
        outbox.transaction(async |tx| outbox.schedule(tx, &event).await.map(drop)).await.unwrap();
    }
    ledger.until_done(3).await;
    let failed = |signal: &Signal| matches!(signal, Signal::StoreFailed { .. });
    // One who listens and one who tells.
    assert!(stage.signals.picked(absent).len() <= 2 && stage.signals.count(failed) == 0);
    running.shutdown().await;
    pool.close().await;
    drop(outbox);
    run(format!("DROP DATABASE {name} WITH (FORCE)")).await;
    run(format!("DROP ROLE {name}")).await;
}
