//! The databases that clusters run on, and the little that the tests ask them directly.

use std::{env, future::Future, path::PathBuf, time::Duration};

use keylane::{Database, database::Pool, sqlx};
use sqlx::{AssertSqlSafe, Executor, Row};

/// A database of the tests.
pub(crate) trait Target: Sized + Send + Sync + 'static {
    type Db: Database<Pool = Self::Pool>;
    type Pool: Pool<Database = Self::Db> + Clone + Send + Sync;

    /// Its address; `unique` names the test.
    fn url(unique: &str) -> String;
    fn connect(url: &str) -> Self::Pool;
    /// Owner and generation of each partition.
    fn claims(pool: &Self::Pool, prefix: &str) -> impl Future<Output = Vec<(Option<String>, i64)>> + Send;
    /// Runs statements; what they say is not looked at.
    fn run(pool: &Self::Pool, sql: String) -> impl Future<Output = ()> + Send;
    /// Reads numbers, a row after another.
    fn numbers(pool: &Self::Pool, sql: String) -> impl Future<Output = Vec<Vec<i64>>> + Send;
}

pub(crate) struct Postgres;
pub(crate) struct MariaDb;
pub(crate) struct Sqlite;

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `eval \"$(dev/services env)\"` first"))
}

/// The file of a test on SQLite.
pub(crate) fn sqlite_file(unique: &str) -> PathBuf {
    env::temp_dir().join(format!("keylane-{unique}.db"))
}

macro_rules! target {
    ($target:ty, $database:ty, $url:expr, $connect:expr) => {
        impl Target for $target {
            type Db = $database;
            type Pool = sqlx::Pool<$database>;

            fn url(unique: &str) -> String {
                let url: fn(&str) -> String = $url;
                url(unique)
            }

            fn connect(url: &str) -> Self::Pool {
                let connect: fn(&str) -> Self::Pool = $connect;
                connect(url)
            }

            async fn claims(pool: &Self::Pool, prefix: &str) -> Vec<(Option<String>, i64)> {
                let sql = format!("SELECT owner, generation FROM {prefix}partition ORDER BY partition_no");
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(pool).await.expect("claims");
                rows.iter().map(|row| (row.get(0), row.get(1))).collect()
            }

            async fn run(pool: &Self::Pool, sql: String) {
                pool.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.expect("statement");
            }

            async fn numbers(pool: &Self::Pool, sql: String) -> Vec<Vec<i64>> {
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(pool).await.expect("numbers");
                rows.iter().map(|row| (0..row.len()).map(|column| row.get(column)).collect()).collect()
            }
        }
    };
}

target!(Postgres, sqlx::Postgres, |_| variable("KEYLANE_TEST_POSTGRES_URL"), |url| {
    sqlx::postgres::PgPoolOptions::new().max_connections(4).connect_lazy(url).expect("address")
});
target!(MariaDb, sqlx::MySql, |_| variable("KEYLANE_TEST_MARIADB_URL"), |url| {
    sqlx::mysql::MySqlPoolOptions::new().max_connections(4).connect_lazy(url).expect("address")
});
target!(
    Sqlite,
    sqlx::Sqlite,
    |unique| format!("sqlite://{}?mode=rwc", sqlite_file(unique).display()),
    |url| {
        let options: sqlx::sqlite::SqliteConnectOptions = url.parse().expect("address");
        let options =
            options.journal_mode(sqlx::sqlite::SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(5));
        sqlx::sqlite::SqlitePoolOptions::new().max_connections(4).connect_lazy_with(options)
    }
);
