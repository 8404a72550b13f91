//! The databases of the clusters, and the queries of the tests themselves.

use std::{env, future::Future, path::PathBuf, time::Duration};

use keylane::{
    database::{Database, Pool},
    sqlx,
};
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::verdict::Change;

/// A database of the tests.
pub(crate) trait Target: Sized + Send + Sync + 'static {
    type Db: Database<Pool = Self::Pool>;
    type Pool: Pool<Database = Self::Db> + Clone + Send + Sync;

    /// Why nothing can run here, if so. MySQL's packages may be missing.
    fn skipped() -> Option<String>;
    /// The address of the database. `unique` names the test.
    fn url(unique: &str) -> String;
    fn connect(url: &str) -> Self::Pool;
    /// Owner and generation of each partition.
    fn claims(pool: &Self::Pool, prefix: &str) -> impl Future<Output = Vec<(Option<String>, i64)>> + Send;
    /// Whether the log of owners is kept. SQLite has no clock that is finer than a millisecond, in which a release and
    /// the claim after it would fall; there, the generations of the calls tell who owns what.
    const LOGS_OWNERS: bool;
    /// Whether one transaction writes at a time. A process that is frozen in its transaction then keeps out all others.
    const ONE_WRITER: bool;
    /// Does something while no other process is in a transaction that keeps out all others.
    fn between_writers(pool: &Self::Pool, what: impl FnOnce() + Send) -> impl Future<Output = ()> + Send;
    /// Keeps a log of owners and members in a table, by triggers.
    fn log_ownership(pool: &Self::Pool, prefix: &str) -> impl Future<Output = ()> + Send;
    /// Reads the log in the order of its rows.
    fn changes(pool: &Self::Pool, prefix: &str) -> impl Future<Output = Vec<Change>> + Send;
    /// Runs statements whose rows do not matter.
    fn run(pool: &Self::Pool, sql: String) -> impl Future<Output = ()> + Send;
    /// Reads rows of numbers.
    fn numbers(pool: &Self::Pool, sql: String) -> impl Future<Output = Vec<Vec<i64>>> + Send;
}

/// Creates the triggers that log each row with the time of its write. The statements are run one by one.
const POSTGRES_LOG: [&str; 5] = [
    "CREATE TABLE {p}change (seq bigserial, at bigint NOT NULL, partition_no bigint, generation bigint, instance text, state text)",
    "CREATE FUNCTION {p}log_partition() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {p}change (at, partition_no, generation, instance)
        VALUES ((extract(epoch from clock_timestamp()) * 1000000)::bigint, NEW.partition_no, NEW.generation, NEW.owner);
        RETURN NULL; END $$",
    "CREATE TRIGGER log_partition AFTER UPDATE ON {p}partition FOR EACH ROW EXECUTE FUNCTION {p}log_partition()",
    "CREATE FUNCTION {p}log_instance() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'INSERT' OR NEW.state <> OLD.state THEN
            INSERT INTO {p}change (at, instance, state)
            VALUES ((extract(epoch from clock_timestamp()) * 1000000)::bigint, NEW.instance_id, NEW.state);
        END IF;
        RETURN NULL; END $$",
    "CREATE TRIGGER log_instance AFTER INSERT OR UPDATE ON {p}instance FOR EACH ROW EXECUTE FUNCTION {p}log_instance()",
];
const MYSQL_LOG: [&str; 4] = [
    "CREATE TABLE {p}change (seq bigint AUTO_INCREMENT PRIMARY KEY, at bigint NOT NULL, partition_no bigint,
        generation bigint, instance varchar(64), state varchar(16))",
    "CREATE TRIGGER {p}log_partition AFTER UPDATE ON {p}partition FOR EACH ROW
        INSERT INTO {p}change (at, partition_no, generation, instance)
        VALUES (CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED), NEW.partition_no, NEW.generation, NEW.owner)",
    "CREATE TRIGGER {p}log_joined AFTER INSERT ON {p}instance FOR EACH ROW
        INSERT INTO {p}change (at, instance, state)
        VALUES (CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED), NEW.instance_id, NEW.state)",
    "CREATE TRIGGER {p}log_instance AFTER UPDATE ON {p}instance FOR EACH ROW
        INSERT INTO {p}change (at, instance, state)
        SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED), NEW.instance_id, NEW.state
        FROM DUAL WHERE NEW.state <> OLD.state",
];

pub(crate) struct Postgres;
pub(crate) struct MariaDb;
pub(crate) struct MySql;
pub(crate) struct Sqlite;

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `eval \"$(dev/services env)\"` first"))
}

/// The file of a test on SQLite.
pub(crate) fn sqlite_file(unique: &str) -> PathBuf {
    env::temp_dir().join(format!("keylane-{unique}.db"))
}

macro_rules! target {
    ($target:ty, $database:ty, $skipped:expr, $url:expr, $triggers:expr, $one_writer:literal, $connect:expr) => {
        impl Target for $target {
            type Db = $database;
            type Pool = sqlx::Pool<$database>;

            fn skipped() -> Option<String> {
                $skipped
            }

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

            const LOGS_OWNERS: bool = !$triggers.is_empty();
            const ONE_WRITER: bool = $one_writer;

            async fn between_writers(pool: &Self::Pool, what: impl FnOnce() + Send) {
                if !Self::ONE_WRITER {
                    return what();
                }
                let lock = pool.begin_with("BEGIN IMMEDIATE").await.expect("the write lock");
                what();
                lock.rollback().await.expect("rollback");
            }

            async fn log_ownership(pool: &Self::Pool, prefix: &str) {
                for statement in $triggers {
                    Self::run(pool, statement.replace("{p}", prefix)).await;
                }
            }

            async fn changes(pool: &Self::Pool, prefix: &str) -> Vec<Change> {
                if !Self::LOGS_OWNERS {
                    return Vec::new();
                }
                let sql = format!(
                    "SELECT at, partition_no, generation, instance, state FROM {prefix}change ORDER BY seq"
                );
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(pool).await.expect("changes");
                let change = |row: &<$database as sqlx::Database>::Row| Change {
                    at: row.get(0),
                    partition: row.get(1),
                    generation: row.get(2),
                    instance: row.get(3),
                    state: row.get(4),
                };
                rows.iter().map(change).collect()
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

target!(
    Postgres,
    sqlx::Postgres,
    None,
    |_| variable("KEYLANE_TEST_POSTGRES_URL"),
    POSTGRES_LOG,
    false,
    |url| { sqlx::postgres::PgPoolOptions::new().max_connections(4).connect_lazy(url).expect("address") }
);
fn mysql_pool(url: &str) -> sqlx::MySqlPool {
    sqlx::mysql::MySqlPoolOptions::new().max_connections(4).connect_lazy(url).expect("address")
}

target!(MariaDb, sqlx::MySql, None, |_| variable("KEYLANE_TEST_MARIADB_URL"), MYSQL_LOG, false, mysql_pool);
target!(
    MySql,
    sqlx::MySql,
    env::var("KEYLANE_TEST_MYSQL_SKIP").ok(),
    |_| variable("KEYLANE_TEST_MYSQL_URL"),
    MYSQL_LOG,
    false,
    mysql_pool
);
target!(
    Sqlite,
    sqlx::Sqlite,
    None,
    |unique| format!("sqlite://{}?mode=rwc", sqlite_file(unique).display()),
    [""; 0],
    true,
    |url| {
        let options: sqlx::sqlite::SqliteConnectOptions = url.parse().expect("address");
        let options =
            options.journal_mode(sqlx::sqlite::SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(5));
        sqlx::sqlite::SqlitePoolOptions::new().max_connections(4).connect_lazy_with(options)
    }
);
