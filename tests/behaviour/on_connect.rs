//! The statements of the user for each new connection of the outbox, as `after_connect` of a pool has them.

use keylane::{Outbox, StartError};
use sqlx::{AssertSqlSafe, Executor};

use crate::{
    ledger::{Ledger, run_of},
    stage::{Stage, until_empty},
    target::{MariaDbTarget, MySqlTarget, Pool, PostgresTarget, SqlTarget, SqliteTarget},
    user::User,
};

/// A server whose connections can be sent to other tables by a statement.
pub(crate) trait Namespaces: User + SqlTarget {
    /// Makes a namespace, enters it, and removes it.
    const CREATE: &str;
    const ENTER: &str;
    const DROP: &str;

    /// A pool that runs this statement on each of its connections.
    fn pool_with(pool: &Pool<Self>, after_connect: &str) -> Pool<Self>;
}

macro_rules! namespaces {
    ($($target:ty: $options:ty, $create:literal, $enter:literal, $drop:literal;)*) => {$(
        impl Namespaces for $target {
            const CREATE: &str = $create;
            const ENTER: &str = $enter;
            const DROP: &str = $drop;

            fn pool_with(pool: &Pool<Self>, after_connect: &str) -> Pool<Self> {
                let statement = after_connect.to_owned();
                let options = <$options>::new().max_connections(3).after_connect(move |conn, _| {
                    let statement = AssertSqlSafe(statement.clone());
                    Box::pin(async move { conn.execute(sqlx::raw_sql(statement)).await.map(drop) })
                });
                options.connect_lazy_with((*pool.connect_options()).clone())
            }
        }
    )*};
}

namespaces! {
    PostgresTarget: sqlx::postgres::PgPoolOptions,
        "CREATE SCHEMA {name}", "SET search_path TO {name}", "DROP SCHEMA {name} CASCADE";
    MariaDbTarget: sqlx::mysql::MySqlPoolOptions, "CREATE DATABASE {name}", "USE {name}", "DROP DATABASE {name}";
    MySqlTarget: sqlx::mysql::MySqlPoolOptions, "CREATE DATABASE {name}", "USE {name}", "DROP DATABASE {name}";
}

/// The tables stand where only `after_connect` of the pool and `database.on_connect` lead.
pub(crate) async fn workers_run_what_the_pool_runs_after_it_has_connected<T: Namespaces>(stage: &Stage<T>) {
    let (ledger, name) = (Ledger::default(), format!("n{}", stage.unique()));
    stage.execute(&T::CREATE.replace("{name}", &name)).await;
    let enter = T::ENTER.replace("{name}", &name);
    let pool = T::pool_with(&stage.pool, &enter);
    let mut config = stage.config.clone();
    // Names without a schema, or nothing would depend on the statement.
    config.schema = None;
    config.database.on_connect = vec![enter];
    let builder = Outbox::builder(pool.clone()).config(config).observer(stage.signals.clone());
    let outbox = builder.handler(ledger.keeper("bookkeeper")).build().await.unwrap();
    outbox.migrate().await.unwrap();
    let running = outbox.start().await.unwrap();
    let mut work = T::begin(&pool).await;
    outbox.schedule_all(&mut work, &run_of("order-1", 3)).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    ledger.until_done(3).await;
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
    drop(outbox);
    drop(pool);
    stage.execute(&T::DROP.replace("{name}", &name)).await;
}

/// What waiting does not fix is told at once, with the place of the statement.
pub(crate) async fn a_statement_that_cannot_run_is_told_at_the_start<T: Namespaces>(stage: &Stage<T>) {
    for (statement, told) in
        [("SELECT nothing_of_this_name", "was refused"), ("BEGIN", "leaves a transaction open")]
    {
        let mut config = stage.config.clone();
        config.database.on_connect = vec!["SELECT 1".to_owned(), statement.to_owned()];
        let builder = Outbox::builder(stage.pool.clone()).config(config);
        let outbox = builder.handler(Ledger::default().keeper("bookkeeper")).build().await.unwrap();
        let Err(StartError::Schema(error)) = outbox.start().await else { panic!("{statement} passed") };
        for error in [error, outbox.migrate().await.unwrap_err()].map(|error| error.to_string()) {
            assert!(error.starts_with("database.on_connect[1] ") && error.contains(told), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_has_options_for_its_pragmas() {
    let stage = Stage::<SqliteTarget>::open().await.unwrap();
    let mut config = stage.config.clone();
    config.database.on_connect = vec!["PRAGMA synchronous = OFF".to_owned()];
    let builder = Outbox::builder(stage.pool.clone()).config(config);
    let outbox = builder.handler(Ledger::default().keeper("bookkeeper")).build().await.unwrap();
    let Err(StartError::Schema(error)) = outbox.start().await else { panic!("it has started") };
    let told = "database.on_connect[0] is not for SQLite: set pragmas in the options of the pool";
    assert_eq!(error.to_string(), told);
    stage.erase().await;
}
