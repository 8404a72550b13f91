//! The refusals of `start`, in sentences with a remedy. After a refusal no instance has joined.

use std::time::Duration;

use keylane::{Outbox, Running, SchemaError, Signal, StartError, database::Database, memory::MemoryPool};
use sqlx::{
    mysql::MySqlPoolOptions,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::SqlitePoolOptions,
};

use crate::{
    ledger::{Ledger, placed},
    recorder::bounded,
    stage::{Stage, until_empty},
    target::{MariaDbTarget, MemoryTarget, Pool, PostgresTarget, SqlTarget, SqliteTarget},
    user::User,
};

/// Asserts that `start` refuses at once, and that no instance has joined.
async fn refused<T: User>(stage: &Stage<T>) -> SchemaError {
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    let started = bounded("the refusal", outbox.start()).await;
    assert_eq!(stage.signals.count(|signal| matches!(signal, Signal::Joined { .. })), 0);
    schema_error(started)
}

fn schema_error(started: Result<Running, StartError>) -> SchemaError {
    match started {
        Err(StartError::Schema(error)) => error,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it started"),
    }
}

pub(crate) async fn a_schema_that_was_not_migrated_is_told<T: User + SqlTarget>(stage: &Stage<T>) {
    let mut config = stage.config.clone();
    config.table_prefix.push_str("none_");
    let builder = stage.builder().await.config(config);
    let outbox = builder.handler(Ledger::default().keeper("bookkeeper")).build().await.unwrap();
    let error = schema_error(bounded("the refusal", outbox.start()).await);
    assert!(matches!(error, SchemaError::Missing), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the outbox tables are missing: call Outbox::migrate(), or have a DBA run the output of `keylane \
         migrate --print`"
    );
    let mut work = T::begin(&stage.pool).await;
    assert!(outbox.schedule(&mut work, &placed("order-1", 1)).await.is_err());
    T::rollback(work).await;
}

/// A statement per handler would take seconds on a server.
pub(crate) async fn a_thousand_handlers_are_published_as_they_start<T: User>(stage: &Stage<T>) {
    const HANDLERS: usize = 1000;
    let ledger = Ledger::default();
    let names: Vec<&'static str> = (0..HANDLERS).map(|n| format!("mail-{n}").leak() as &str).collect();
    let outbox = stage.outbox(names.iter().map(|name| ledger.keeper(name))).await;
    let running = outbox.start().await.unwrap();
    let producer = stage.outbox([]).await;
    let mut work = T::begin(&stage.pool).await;
    let scheduled = producer.schedule(&mut work, &placed("order-1", 1)).await.unwrap();
    T::commit(work).await;
    producer.wake();
    assert_eq!(scheduled.records, HANDLERS);
    ledger.until_done(HANDLERS).await;
    running.shutdown().await;
}

pub(crate) async fn a_newer_schema_is_told<T: User + SqlTarget>(stage: &Stage<T>) {
    stage.execute("UPDATE {outbox}meta SET schema_version = 77").await;
    let error = refused(stage).await.to_string();
    assert!(error.contains("version 77") && error.contains("deploy a newer build"), "{error}");
}

pub(crate) async fn another_hash_is_told<T: User + SqlTarget>(stage: &Stage<T>) {
    stage.execute("UPDATE {outbox}meta SET partition_hash = 'crc32', partition_count = 64").await;
    let error = refused(stage).await.to_string();
    assert!(error.contains("crc32 % 64") && error.contains("xxh3_64 % 256"), "{error}");
    assert!(error.contains("run a build that matches, or drain the outbox"), "{error}");
}

pub(crate) async fn missing_partition_rows_are_told<T: User + SqlTarget>(stage: &Stage<T>) {
    stage.execute("DELETE FROM {outbox}partition WHERE partition_no > 249").await;
    let error = refused(stage).await.to_string();
    assert!(error.contains("250 rows instead of 256: insert the missing"), "{error}");
}

#[tokio::test]
async fn without_handlers_there_is_nothing_to_start() {
    let stage = Stage::<MemoryTarget>::open().await.unwrap();
    let outbox = stage.outbox([]).await;
    let Err(error) = outbox.start().await else { panic!("it started") };
    assert_eq!(
        error.to_string(),
        "this outbox has no handlers: it can schedule, but there is nothing to start"
    );
}

async fn read_only_sqlite(stage: &Stage<SqliteTarget>, pool: sqlx::SqlitePool) -> String {
    let builder = Outbox::builder(pool).config(stage.config.clone()).observer(stage.signals.clone());
    let outbox = builder.handler(Ledger::default().keeper("bookkeeper")).build().await.unwrap();
    schema_error(bounded("the refusal", outbox.start()).await).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_a_read_only_file_is_told() {
    let stage = Stage::<SqliteTarget>::open().await.unwrap();
    let options = (*stage.pool.connect_options()).clone().read_only(true);
    let pool = SqlitePoolOptions::new().connect_with(options).await.unwrap();
    let error = read_only_sqlite(&stage, pool).await;
    assert!(error.starts_with("the database is read-only"), "{error}");
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_a_query_only_connection_is_told() {
    let stage = Stage::<SqliteTarget>::open().await.unwrap();
    let options = (*stage.pool.connect_options()).clone().pragma("query_only", "ON");
    let pool = SqlitePoolOptions::new().connect_with(options).await.unwrap();
    let error = read_only_sqlite(&stage, pool).await;
    assert!(error.starts_with("the database is read-only"), "{error}");
    stage.erase().await;
}

/// The error of `start` with these options, as a sentence.
async fn on_postgres(stage: &Stage<PostgresTarget>, options: PgConnectOptions) -> String {
    let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(options);
    let builder = Outbox::builder(pool).config(stage.config.clone()).observer(stage.signals.clone());
    let outbox = builder.handler(Ledger::default().keeper("bookkeeper")).build().await.unwrap();
    match schema_error(bounded("the refusal", outbox.start()).await) {
        SchemaError::Store(error) => error.chain(),
        other => other.to_string(),
    }
}

pub(crate) async fn a_worker_pool_of_the_same_tables_is_taken<T: User>(stage: &Stage<T>) {
    let ledger = Ledger::default();
    let workers = match T::Db::NAME {
        "memory" => stage.pool.clone(),
        _ => T::open(stage.unique()).await.unwrap(),
    };
    let builder = stage.builder().await.worker_pool(workers);
    let outbox = builder.handler(ledger.keeper("bookkeeper")).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    ledger.until_done(1).await;
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
}

/// Tables with the same names in another place.
async fn a_worker_pool_of_other_tables_is_refused<T: User>(stage: &Stage<T>, other: Pool<T>) {
    let migrated = Outbox::builder(other.clone()).config(stage.config.clone()).build().await.unwrap();
    migrated.migrate().await.unwrap();
    let builder = stage.builder().await.worker_pool(other);
    let outbox = builder.handler(Ledger::default().keeper("bookkeeper")).build().await.unwrap();
    let error = schema_error(bounded("the refusal", outbox.start()).await);
    assert!(matches!(error, SchemaError::WorkerPool { .. }), "{error:?}");
}

#[tokio::test]
async fn memory_a_worker_pool_of_other_tables_is_refused() {
    let stage = Stage::<MemoryTarget>::open().await.unwrap();
    a_worker_pool_of_other_tables_is_refused(&stage, MemoryPool::new()).await;
}

#[tokio::test]
async fn sqlite_a_worker_pool_of_other_tables_is_refused() {
    let [stage, other] = [(); 2].map(|()| Stage::<SqliteTarget>::bare());
    let (stage, other) = (stage.await.unwrap(), other.await.unwrap());
    stage.outbox([]).await.migrate().await.unwrap();
    a_worker_pool_of_other_tables_is_refused(&stage, other.pool.clone()).await;
    stage.erase().await;
    other.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_a_worker_pool_of_other_tables_is_refused() {
    let stage = Stage::<MariaDbTarget>::open().await.unwrap();
    let name = stage.unique().to_owned();
    let run = async |sql: String| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&stage.pool).await.unwrap();
    run(format!("CREATE DATABASE {name}")).await;
    let options = (*stage.pool.connect_options()).clone().database(&name);
    let other = MySqlPoolOptions::new().max_connections(2).connect_lazy_with(options);
    a_worker_pool_of_other_tables_is_refused(&stage, other).await;
    run(format!("DROP DATABASE {name}")).await;
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_read_only_database_is_told() {
    let stage = Stage::<PostgresTarget>::open().await.unwrap();
    let options = (*stage.pool.connect_options()).clone().options([("default_transaction_read_only", "on")]);
    let error = on_postgres(&stage, options).await;
    assert!(error.starts_with("the database is read-only"), "{error}");
    assert!(error.ends_with("connect to the primary"), "{error}");
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_database_that_is_not_there_is_not_called_unmigrated() {
    let stage = Stage::<PostgresTarget>::open().await.unwrap();
    let options = (*stage.pool.connect_options()).clone().database("no_such_database");
    let error = on_postgres(&stage, options).await;
    assert!(error.contains("\"no_such_database\" does not exist"), "{error}");
    stage.erase().await;
}

#[tokio::test]
async fn a_schema_that_does_not_fit_is_no_reason_to_wait() {
    let stage = Stage::<SqliteTarget>::bare().await.unwrap();
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    let started = tokio::time::timeout(Duration::from_secs(10), outbox.start()).await;
    assert!(matches!(schema_error(started.expect("it waits")), SchemaError::Missing));
    outbox.migrate().await.unwrap();
    let running = outbox.start().await.unwrap();
    running.shutdown().await;
    stage.erase().await;
}
