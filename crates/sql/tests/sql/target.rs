//! The four databases that every case runs on, for the tests of each crate that has tables of its own.

#![allow(dead_code, unused_imports, reason = "no crate needs all of it")]

use std::{
    env,
    future::Future,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use keylane_sql::{Family, Kind, SqlDatabase};
use sqlx::{
    AssertSqlSafe, MySql, Pool, Postgres, Sqlite,
    mysql::MySqlPoolOptions,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};

static NUMBER: AtomicU32 = AtomicU32::new(0);
/// Connections that a case uses at most.
pub(crate) const CONNECTIONS: u32 = 8;
/// How long a case waits at most for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Connection<T> = <<T as Target>::Db as sqlx::Database>::Connection;

/// A database under test.
pub(crate) trait Target: Sized + 'static {
    /// Its tables may have everything that the crate under test needs from a database.
    type Db: SqlDatabase + crate::UnderTest;

    /// A pool of sessions at this level of isolation. `None`: skipped, with a printed notice.
    fn open(name: &str, level: &str) -> impl Future<Output = Option<Pool<Self::Db>>>;
}

pub(crate) struct OnPostgres;
pub(crate) struct OnMariaDb;
pub(crate) struct OnMySql;
pub(crate) struct OnSqlite;

pub(crate) fn url(variable: &str) -> String {
    env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `eval \"$(dev/services env)\"` first"))
}

/// A prefix that no other case has.
pub(crate) fn prefix(of: &str) -> String {
    format!("{of}{}_{}_", std::process::id(), NUMBER.fetch_add(1, Relaxed))
}

/// Runs statements as they are, where `{}` is the prefix.
pub(crate) async fn execute<DB: SqlDatabase>(
    pool: &Pool<DB>,
    prefix: &str,
    sql: &str,
) -> Result<(), sqlx::Error> {
    DB::script(&mut *pool.acquire().await?, &sql.replace("{}", prefix)).await
}

/// Reads one number, where `{}` is the prefix.
pub(crate) async fn number<DB: SqlDatabase>(pool: &Pool<DB>, prefix: &str, sql: &str) -> i64 {
    let mut conn = pool.acquire().await.unwrap();
    let sql = sql.replace("{}", prefix);
    let rows = DB::query(&mut conn, &sql, Vec::new(), &[Kind::Int], true).await.unwrap();
    rows[0].int(0).unwrap()
}

/// Drops the tables with these names, and the file of SQLite.
pub(crate) async fn end<DB: SqlDatabase>(pool: &Pool<DB>, prefix: &str, tables: &[&str]) {
    for table in tables {
        execute(pool, prefix, &format!("DROP TABLE {{}}{table}")).await.unwrap();
    }
    pool.close().await;
    for ending in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{ending}", sqlite_file(prefix))));
    }
}

/// A statement after which a session waits for a lock for no longer than this database has to.
pub(crate) fn impatient<DB: SqlDatabase>() -> &'static str {
    match DB::DIALECT.family {
        Family::Postgres => "SET lock_timeout = '100ms'",
        Family::MySql => "SET innodb_lock_wait_timeout = 1",
        Family::Sqlite => "PRAGMA busy_timeout = 100",
    }
}

/// A time long ago, as the tables have it.
pub(crate) fn past<DB: SqlDatabase>() -> &'static str {
    match DB::DIALECT.family {
        Family::Sqlite => "1577836800000000",
        _ => "'2020-01-01 00:00:00'",
    }
}

fn sqlite_file(name: &str) -> String {
    env::temp_dir().join(format!("keylane-test-{name}.db")).to_string_lossy().into_owned()
}

/// Options of a pool whose sessions run this statement first.
macro_rules! first {
    ($options:ty, $first:expr) => {{
        let first: String = $first;
        <$options>::new().max_connections(CONNECTIONS).after_connect(move |conn, _| {
            let first = first.clone();
            Box::pin(async move { sqlx::raw_sql(AssertSqlSafe(first)).execute(conn).await.map(drop) })
        })
    }};
}

async fn mysql(variable: &str, level: &str) -> sqlx::MySqlPool {
    let first = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
    first!(MySqlPoolOptions, first).connect(&url(variable)).await.unwrap()
}

impl Target for OnPostgres {
    type Db = Postgres;

    async fn open(name: &str, level: &str) -> Option<sqlx::PgPool> {
        let options: PgConnectOptions = url("KEYLANE_TEST_POSTGRES_URL").parse().unwrap();
        let first = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
        Some(first!(PgPoolOptions, first).connect_with(options.application_name(name)).await.unwrap())
    }
}

impl Target for OnMariaDb {
    type Db = MySql;

    async fn open(_: &str, level: &str) -> Option<sqlx::MySqlPool> {
        Some(mysql("KEYLANE_TEST_MARIADB_URL", level).await)
    }
}

impl Target for OnMySql {
    type Db = MySql;

    async fn open(_: &str, level: &str) -> Option<sqlx::MySqlPool> {
        if let Ok(reason) = env::var("KEYLANE_TEST_MYSQL_SKIP") {
            eprintln!("MySQL is skipped: {reason}");
            return None;
        }
        Some(mysql("KEYLANE_TEST_MYSQL_URL", level).await)
    }
}

impl Target for OnSqlite {
    type Db = Sqlite;

    async fn open(name: &str, _: &str) -> Option<sqlx::SqlitePool> {
        let options = SqliteConnectOptions::new()
            .filename(sqlite_file(name))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(20));
        Some(SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await.unwrap())
    }
}

/// Runs one generic case on each database.
macro_rules! on_each {
    (@ $case:ident: $($name:ident = $target:ident),*) => {
        mod $case {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$case::<crate::target::$target>().await;
            }
        )*}
    };
    ($($case:ident),* $(,)?) => {$(
        crate::target::on_each!(
            @ $case: postgres = OnPostgres, mariadb = OnMariaDb, mysql = OnMySql, sqlite = OnSqlite
        );
    )*};
}

pub(crate) use on_each;
