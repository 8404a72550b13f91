//! PgBouncer on the way: in session mode the workers work; in the other modes they need another address of
//! the database.

use std::time::Duration;

use keylane::{Config, Outbox, OutboxBuilder, SchemaError, Signal, StartError};
use sqlx::{
    PgPool, Postgres, Row,
    postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
};

use crate::{
    ledger::{Ledger, placed, run_of},
    recorder::bounded,
    stage::{Stage, until_empty},
    target::{PostgresTarget, url},
    transactions::{Then, book},
    user::User,
};

type PgStage = Stage<PostgresTarget>;

/// A pool behind an old pooler, as a user has it: `extra_float_digits` is refused in the start-up packet, and
/// named statements are lost.
fn pool(mode: &str) -> PgPool {
    pool_with(options(mode))
}

fn options(mode: &str) -> PgConnectOptions {
    let options: PgConnectOptions = url(&format!("KEYLANE_TEST_PGBOUNCER_{mode}_URL")).parse().unwrap();
    options.extra_float_digits(None).statement_cache_capacity(0)
}

fn pool_with(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new().max_connections(5).connect_lazy_with(options)
}

fn builder(stage: &PgStage, pool: PgPool) -> OutboxBuilder<Postgres> {
    Outbox::builder(pool).config(stage.config.clone()).observer(stage.signals.clone())
}

/// The error that `start` returns at once.
async fn told(outbox: &Outbox<Postgres>) -> SchemaError {
    let started = tokio::time::timeout(Duration::from_secs(5), outbox.start()).await;
    match started.expect("it waits") {
        Err(StartError::Schema(error)) => error,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it started"),
    }
}

/// Polls are further apart than the case may take: a notification reports the commits of another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_workers_work_through_a_pooler_in_session_mode() {
    let stage = PgStage::open().await.unwrap();
    let mut config: Config = stage.config.clone();
    config.delivery.poll_interval = Duration::from_secs(300);
    let ledger = Ledger::default();
    let worker = builder(&stage, pool("SESSION")).config(config.clone());
    let worker = worker.handler(ledger.keeper("bookkeeper")).build().await.unwrap();
    worker.migrate().await.unwrap();
    let running = worker.start().await.unwrap();
    let producer = builder(&stage, pool("SESSION")).config(config).build().await.unwrap();
    for number in 1..=3 {
        let event = placed("order-1", number);
        producer.transaction(async |tx| producer.schedule(tx, &event).await.map(drop)).await.unwrap();
        ledger.until_done(number as usize).await;
    }
    until_empty(&worker).await;
    assert_eq!(ledger.done_of("order-1"), [1, 2, 3]);
    let absent = |signal: &Signal| matches!(signal, Signal::NotificationsAbsent { .. });
    assert!(running.shutdown().await.graceful);
    assert_eq!(stage.signals.count(absent), 0);
    stage.erase().await;
}

/// The workers' own connections have the TLS options of the pool, too. The pooler has a certificate of 127.0.0.1
/// that is its own authority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_the_certificate_is_verified_as_the_pool_asks() {
    let stage = PgStage::open().await.unwrap();
    let verifying = || options("SESSION").ssl_mode(PgSslMode::VerifyFull);
    let with_authority = || verifying().ssl_root_cert(url("KEYLANE_TEST_PGBOUNCER_CA"));
    for (options, problem) in
        [(verifying(), "UnknownIssuer"), (with_authority().host("localhost"), "not valid for name")]
    {
        let outbox = builder(&stage, pool_with(options)).handler(Ledger::default().keeper("bookkeeper"));
        let error = told(&outbox.build().await.unwrap()).await.to_string();
        assert!(error.contains(problem), "{error}");
    }
    let ledger = Ledger::default();
    let outbox = builder(&stage, pool_with(with_authority())).handler(ledger.keeper("bookkeeper"));
    let outbox = outbox.build().await.unwrap();
    outbox.migrate().await.unwrap();
    let running = outbox.start().await.unwrap();
    let event = placed("order-1", 1);
    outbox.transaction(async |tx| outbox.schedule(tx, &event).await.map(drop)).await.unwrap();
    ledger.until_done(1).await;
    assert!(running.shutdown().await.graceful);
    stage.erase().await;
}

/// Also if the pooler lends one connection of the server to all, and while other clients use it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_workers_behind_a_pooler_without_sessions_are_refused() {
    let stage = PgStage::open().await.unwrap();
    for (address, its_mode) in
        [("TRANSACTION", "transaction"), ("SINGLE", "transaction"), ("STATEMENT", "statement")]
    {
        let pool = pool(address);
        let busy: Vec<_> = (0..4)
            .map(|_| {
                let pool = pool.clone();
                tokio::spawn(async move { while sqlx::raw_sql("SELECT 1").execute(&pool).await.is_ok() {} })
            })
            .collect();
        for _ in 0..10 {
            let outbox = builder(&stage, pool.clone()).handler(Ledger::default().keeper("bookkeeper"));
            let outbox = outbox.build().await.unwrap();
            let error = told(&outbox).await;
            assert!(matches!(error, SchemaError::Pooler { mode, .. } if mode == its_mode), "{error:?}");
            assert!(error.to_string().contains("builder.worker_pool(pool)"), "{error}");
            let error = outbox.migrate().await.unwrap_err();
            assert!(matches!(error, SchemaError::Pooler { .. }), "{error:?}");
            let error = outbox.admin().counts().await.unwrap_err().to_string();
            assert!(error.contains("builder.worker_pool(pool)"), "{error}");
        }
        for task in busy {
            task.abort();
        }
    }
    stage.erase().await;
}

/// No setting of the process is left to other clients on the same connection of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_process_that_only_schedules_works_through_a_pooler_in_transaction_mode() {
    let stage = PgStage::open().await.unwrap();
    PostgresTarget::make_effects(&stage.pool, &stage.tables).await;
    let ledger = Ledger::default();
    let worker = builder(&stage, stage.pool.clone()).handler(ledger.keeper("bookkeeper"));
    let worker = worker.build().await.unwrap();
    let running = worker.start().await.unwrap();
    let pool = pool("SINGLE");
    let producer = builder(&stage, pool.clone()).build().await.unwrap();
    // The list of handlers is read on a separate connection, for which one must be free.
    stage.schedule(&producer, &[placed("order-0", 1)]).await;
    schedule_with_effects(&stage, &producer, &pool).await;
    ledger.until_done(21).await;
    let set = "SELECT name FROM pg_settings WHERE source = 'session' AND name LIKE ANY \
               ('{%timeout%,default_transaction%,enable%,plan_cache%,synchronous%,keylane%}')";
    let left = sqlx::raw_sql(set).fetch_all(&pool).await.unwrap();
    assert!(left.is_empty(), "{:?}", left.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>());
    running.shutdown().await;
    stage.erase().await;
}

/// Business rows and events, in transactions of the user, two at a time.
async fn schedule_with_effects(stage: &PgStage, outbox: &Outbox<Postgres>, pool: &PgPool) {
    let both = async |key: &str| {
        for event in run_of(key, 10) {
            let mut work = PostgresTarget::begin(pool).await;
            PostgresTarget::write_effect(&mut work, &stage.tables, key).await;
            outbox.schedule(&mut work, &event).await.unwrap();
            PostgresTarget::commit(work).await;
            outbox.wake();
        }
    };
    tokio::join!(both("order-1"), both("order-2"));
    let effects = PostgresTarget::effects(&stage.pool, &stage.tables).await;
    assert_eq!(effects.iter().filter(|effect| *effect == "order-1" || *effect == "order-2").count(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_workers_take_a_direct_address_beside_a_pooled_one() {
    let stage = PgStage::open().await.unwrap();
    PostgresTarget::make_effects(&stage.pool, &stage.tables).await;
    let (ledger, pool) = (Ledger::default(), pool("TRANSACTION"));
    let outbox = builder(&stage, pool.clone()).worker_pool(stage.pool.clone());
    let books = book(&stage, &ledger, |_, _| Then::Succeed).await;
    let outbox = outbox.handlers([ledger.keeper("bookkeeper"), books]).build().await.unwrap();
    outbox.migrate().await.unwrap();
    let running = outbox.start().await.unwrap();
    schedule_with_effects(&stage, &outbox, &pool).await;
    bounded("all delivered", until_empty(&outbox)).await;
    for key in ["order-1", "order-2"] {
        let done = ledger.done_of(key);
        assert_eq!(done.len(), 20, "{done:?}");
    }
    assert!(running.shutdown().await.graceful);
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_worker_pool_of_another_database_is_refused() {
    let stage = PgStage::open().await.unwrap();
    let name = stage.unique().to_owned();
    let run = async |sql: String| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&stage.pool).await.unwrap();
    run(format!("CREATE DATABASE {name}")).await;
    let options = (*stage.pool.connect_options()).clone().database(&name);
    let other = PgPoolOptions::new().max_connections(2).connect_lazy_with(options);
    let migrated = builder(&stage, other.clone()).build().await.unwrap();
    migrated.migrate().await.unwrap();
    // Both have the same row, as after a restore.
    let copy = format!("UPDATE {name}.outbox_meta SET created_at = 'epoch'");
    for pool in [&stage.pool, &other] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(copy.clone())).execute(pool).await.unwrap();
    }
    let outbox = builder(&stage, stage.pool.clone()).worker_pool(other.clone());
    let outbox = outbox.handler(Ledger::default().keeper("bookkeeper")).build().await.unwrap();
    let error = told(&outbox).await;
    assert!(matches!(error, SchemaError::WorkerPool { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("database {name} of")), "{error}");
    drop((outbox, migrated));
    other.close().await;
    run(format!("DROP DATABASE {name} WITH (FORCE)")).await;
    stage.erase().await;
}
