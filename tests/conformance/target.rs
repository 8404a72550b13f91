//! The five stores that the cases run on.

use std::{env, future::Future, path::PathBuf, time::Duration};

use keylane::{
    database::Database,
    inner::Tables,
    memory::{Memory, MemoryPool},
    sql::{SqlDatabase, Statement, Value},
};
use sqlx::{
    AssertSqlSafe, Executor, MySql, Postgres, Row, Sqlite,
    mysql::MySqlPoolOptions,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};

pub(crate) type Pool<T> = <<T as Target>::Db as Database>::Pool;
pub(crate) type Connection<T> = <<T as Target>::Db as Database>::Connection;
pub(crate) type Tx<T> = <<T as Target>::Db as Database>::Transaction;

/// A store under test.
pub(crate) trait Target: Sized + Send + Sync + 'static {
    /// The type parameter of the store.
    type Db: Database;
    /// The resolution of the store's clock.
    const CLOCK_STEP: Duration = Duration::from_micros(1);

    /// Opens a pool; `unique` names the test. `None` if the store is skipped, with a printed notice.
    fn open(unique: &str) -> impl Future<Output = Option<Pool<Self>>>;
    /// Unique table names for a test.
    fn tables(unique: &str) -> Tables;
    /// Removes the tables of a passed test.
    fn erase(pool: &Pool<Self>, unique: &str) -> impl Future<Output = ()>;
}

/// A store that SQL can reach, too.
pub(crate) trait SqlTarget: Target<Db: SqlDatabase> {
    /// Runs statements unchanged. Returns the number of written rows.
    fn execute(
        conn: &mut Connection<Self>,
        sql: String,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
    /// Runs one statement with its parameters, as a client other than the library would. Returns the number
    /// of written rows.
    #[allow(dead_code, reason = "only the conformance suite has statements of its own")]
    fn run(
        conn: &mut Connection<Self>,
        statement: &Statement,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
    /// A separate connection outside of a transaction.
    #[allow(dead_code, reason = "only the behaviour suite schedules as a user does")]
    fn connection(pool: &Pool<Self>) -> impl Future<Output = Connection<Self>>;
    /// Reads one number.
    fn number(conn: &mut Connection<Self>, sql: String) -> impl Future<Output = i64>;
    /// Reads a list of numbers.
    #[allow(dead_code, reason = "only the conformance suite claims by statements of its own")]
    fn numbers(
        conn: &mut Connection<Self>,
        sql: String,
    ) -> impl Future<Output = Result<Vec<i64>, sqlx::Error>>;
}

/// A store on a server, where several transactions write at the same time.
pub(crate) trait Server: SqlTarget {
    /// Ends the open transaction and begins one as the workers do.
    const BEGIN_AGAIN: &str;
    /// Ends the open transaction and begins one that can be prepared under the name `{id}`.
    const BEGIN_IN_TWO_PHASES: &str;
    /// Prepares it: from then on it outlives its connection.
    const PREPARE: &str;
    const COMMIT_PREPARED: &str;
    /// The isolation levels in which a reader with locks lets others insert beside its rows.
    #[allow(dead_code, reason = "only the conformance suite claims by statements of its own")]
    const LEVELS_WITHOUT_GAPS: &[&str];
    /// Makes a statement that waits for a lock fail after a second.
    const WAIT_ONE_SECOND: &str;
    /// Locks the records against all other readers, until the next statement ends the lock.
    const LOCK_RECORDS: &str;
    const UNLOCK_RECORDS: &str;
    /// The names of the statements of a settle that completes records, or a file of the library.
    const SETTLE: &[&str];

    /// The settings of a worker's connection that change its plans.
    const SETUP: &str;
    /// Updates the statistics of the tables.
    const ANALYZE: &str;
    /// Whether a table scan waits for the rows of other transactions that it passes.
    const SCANS_WAIT: bool = true;

    /// The tables that a statement would read as a whole.
    fn full_scans(conn: &mut Connection<Self>, sql: &str) -> impl Future<Output = Vec<String>>;
}

pub(crate) struct PostgresTarget;
pub(crate) struct MariaDbTarget;
pub(crate) struct MySqlTarget;
pub(crate) struct SqliteTarget;
pub(crate) struct MemoryTarget;

/// The most connections that a test needs. The stores open further ones.
const POOL_SIZE: u32 = 5;

/// An address from the environment. A missing address is a failure, never a skip.
pub(crate) fn url(variable: &str) -> String {
    env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `eval \"$(dev/services env)\"` first"))
}

impl Target for PostgresTarget {
    type Db = Postgres;

    async fn open(_: &str) -> Option<sqlx::PgPool> {
        let url = url("KEYLANE_TEST_POSTGRES_URL");
        let pool = PgPoolOptions::new().max_connections(POOL_SIZE).connect(&url).await;
        Some(pool.expect("PostgreSQL answers"))
    }

    fn tables(unique: &str) -> Tables {
        Tables::new(Some(unique), "outbox_").unwrap()
    }

    async fn erase(pool: &sqlx::PgPool, unique: &str) {
        let sql = format!("DROP SCHEMA IF EXISTS {unique} CASCADE; DROP SCHEMA IF EXISTS {unique}b CASCADE");
        // A worker that has ended has left its last statement to the server, which may lock the tables in another order.
        let is_deadlock = |error: &sqlx::Error| {
            error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("40P01"))
        };
        let mut attempts = 0;
        while let Err(error) = pool.execute(sqlx::raw_sql(AssertSqlSafe(sql.clone()))).await {
            attempts += 1;
            assert!(attempts < 10 && is_deadlock(&error), "{error:?}");
        }
    }
}

impl Server for PostgresTarget {
    const SETUP: &str = "";
    const ANALYZE: &str = "ANALYZE {outbox}record; ANALYZE {outbox}lane";
    const BEGIN_AGAIN: &str = "ROLLBACK; BEGIN ISOLATION LEVEL READ COMMITTED";
    const BEGIN_IN_TWO_PHASES: &str = "ROLLBACK; BEGIN";
    const PREPARE: &str = "PREPARE TRANSACTION '{id}'";
    const COMMIT_PREPARED: &str = "COMMIT PREPARED '{id}'";
    const LEVELS_WITHOUT_GAPS: &[&str] = &["READ COMMITTED", "REPEATABLE READ"];
    const WAIT_ONE_SECOND: &str = "SET lock_timeout = '1s'";
    const LOCK_RECORDS: &str = "LOCK TABLE {outbox}record IN ACCESS EXCLUSIVE MODE";
    const UNLOCK_RECORDS: &str = "ROLLBACK; BEGIN";
    const SETTLE: &[&str] = &[include_str!("../../src/store/sql/statements/postgres/settle_delete.sql")];

    const SCANS_WAIT: bool = false;

    async fn full_scans(conn: &mut sqlx::PgConnection, sql: &str) -> Vec<String> {
        let lines = Self::plan(conn, sql).await.into_iter();
        lines.filter(|line| line.contains("Seq Scan on")).collect()
    }
}

impl PostgresTarget {
    /// The lines of the plan of a statement.
    pub(crate) async fn plan(conn: &mut sqlx::PgConnection, sql: &str) -> Vec<String> {
        let explain = AssertSqlSafe(format!("EXPLAIN {sql}"));
        let lines = sqlx::raw_sql(explain).fetch_all(conn).await.expect(sql);
        lines.iter().map(|row| row.get::<String, _>(0)).collect()
    }
}

/// The two members of the MySQL family differ only by their servers.
macro_rules! mysql_target {
    ($target:ty, $explain:literal, $open:expr) => {
        impl Target for $target {
            type Db = MySql;

            async fn open(_: &str) -> Option<sqlx::MySqlPool> {
                let url: Option<String> = $open;
                let pool = MySqlPoolOptions::new().max_connections(POOL_SIZE).connect(&url?).await;
                Some(pool.expect("the server answers"))
            }

            fn tables(unique: &str) -> Tables {
                Tables::new(None, &format!("{unique}_")).unwrap()
            }

            async fn erase(pool: &sqlx::MySqlPool, unique: &str) {
                let find = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables \
                            WHERE table_schema = database() AND table_name LIKE ?";
                let tables: Vec<String> =
                    sqlx::query_scalar(find).bind(format!("{unique}%")).fetch_all(pool).await.unwrap();
                let mut drop: Vec<String> = tables.iter().map(|table| format!("DROP TABLE {table}")).collect();
                // The tables of the case, and those of an outbox beside it.
                let outboxes = tables.iter().filter_map(|table| table.strip_suffix("_meta"));
                drop.extend(outboxes.map(|outbox| {
                    format!("DROP PROCEDURE IF EXISTS {outbox}_schedule; DROP PROCEDURE IF EXISTS {outbox}_partition_of")
                }));
                if !drop.is_empty() {
                    pool.execute(sqlx::raw_sql(AssertSqlSafe(drop.join("; ")))).await.unwrap();
                }
            }
        }

        impl Server for $target {
            const BEGIN_AGAIN: &str = "ROLLBACK; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                                       START TRANSACTION";
            const BEGIN_IN_TWO_PHASES: &str = "ROLLBACK; XA START '{id}'";
            const PREPARE: &str = "XA END '{id}'; XA PREPARE '{id}'";
            const COMMIT_PREPARED: &str = "XA COMMIT '{id}'";
            const SETUP: &str = "/*M! SET SESSION in_predicate_conversion_threshold = 0 */";
            const ANALYZE: &str = "ANALYZE TABLE {outbox}record, {outbox}lane";
            const LEVELS_WITHOUT_GAPS: &[&str] = &["READ COMMITTED"];
            const WAIT_ONE_SECOND: &str = "SET SESSION innodb_lock_wait_timeout = 1";
            const LOCK_RECORDS: &str = "LOCK TABLES {outbox}record WRITE";
            const UNLOCK_RECORDS: &str = "UNLOCK TABLES";
            const SETTLE: &[&str] = &["move_fence", "complete_delete"];

            async fn full_scans(conn: &mut sqlx::MySqlConnection, sql: &str) -> Vec<String> {
                let explain = AssertSqlSafe(format!("{} {sql}", $explain));
                let rows = sqlx::raw_sql(explain).fetch_all(conn).await.expect(sql);
                let text = |row: &sqlx::mysql::MySqlRow, column: &str| {
                    row.try_get_unchecked::<Option<String>, _>(column).unwrap().unwrap_or_default()
                };
                let scans = rows.iter().filter(|row| {
                    let (table, access) = (text(row, "table"), text(row, "type"));
                    // `x` is the list of a statement, `<derived2>` the result of a part of it.
                    let ours =
                        table != "x" && !table.starts_with('<') && text(row, "select_type") != "INSERT";
                    ours && (access == "ALL" || (access == "index" && text(row, "key") == "PRIMARY"))
                });
                scans.map(|row| text(row, "table")).collect()
            }
        }
    };
}

mysql_target!(MariaDbTarget, "EXPLAIN", Some(url("KEYLANE_TEST_MARIADB_URL")));
mysql_target!(MySqlTarget, "EXPLAIN FORMAT=TRADITIONAL", {
    let skip = env::var("KEYLANE_TEST_MYSQL_SKIP").ok();
    skip.iter().for_each(|reason| eprintln!("MySQL is skipped: {reason}"));
    skip.is_none().then(|| url("KEYLANE_TEST_MYSQL_URL"))
});

fn sqlite_file(unique: &str) -> PathBuf {
    env::temp_dir().join(format!("keylane-{unique}.db"))
}

impl Target for SqliteTarget {
    type Db = Sqlite;
    const CLOCK_STEP: Duration = Duration::from_millis(1);

    async fn open(unique: &str) -> Option<sqlx::SqlitePool> {
        let options = SqliteConnectOptions::new()
            .filename(sqlite_file(unique))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(5));
        Some(SqlitePoolOptions::new().max_connections(POOL_SIZE).connect_with(options).await.unwrap())
    }

    fn tables(unique: &str) -> Tables {
        Tables::new(None, &format!("{unique}_")).unwrap()
    }

    async fn erase(pool: &sqlx::SqlitePool, unique: &str) {
        pool.close().await;
        let file = sqlite_file(unique);
        for ending in ["db", "db-wal", "db-shm"] {
            // The log and its index are already deleted if the last connection has closed.
            drop(std::fs::remove_file(file.with_extension(ending)));
        }
    }
}

impl Target for MemoryTarget {
    type Db = Memory;

    async fn open(_: &str) -> Option<MemoryPool> {
        Some(MemoryPool::new())
    }

    fn tables(unique: &str) -> Tables {
        Tables::new(None, &format!("{unique}_")).unwrap()
    }

    async fn erase(_: &MemoryPool, _: &str) {}
}

macro_rules! by_sql {
    ($($target:ty),*) => {$(
        impl SqlTarget for $target {
            async fn execute(conn: &mut Connection<Self>, sql: String) -> Result<u64, sqlx::Error> {
                Ok(sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await?.rows_affected())
            }

            async fn run(conn: &mut Connection<Self>, statement: &Statement) -> Result<u64, sqlx::Error> {
                let mut query = sqlx::query(AssertSqlSafe(statement.text.clone()));
                for value in &statement.values {
                    query = match value {
                        Value::Int(number) => query.bind(*number),
                        Value::SmallInt(number) => query.bind(*number),
                        Value::Text(text) => query.bind(text.clone()),
                        Value::Bytes(bytes) => query.bind(bytes.clone()),
                        Value::Uuid(uuid) => query.bind(*uuid),
                        Value::Null => query.bind(None::<String>),
                        other => panic!("{other:?}"),
                    };
                }
                Ok(query.execute(conn).await?.rows_affected())
            }

            async fn connection(pool: &Pool<Self>) -> Connection<Self> {
                pool.acquire().await.unwrap().detach()
            }

            async fn number(conn: &mut Connection<Self>, sql: String) -> i64 {
                sqlx::query(AssertSqlSafe(sql)).fetch_one(conn).await.unwrap().get::<i64, _>(0)
            }

            async fn numbers(conn: &mut Connection<Self>, sql: String) -> Result<Vec<i64>, sqlx::Error> {
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(conn).await?;
                Ok(rows.iter().map(|row| row.get::<i64, _>(0)).collect())
            }
        }
    )*};
}

by_sql!(PostgresTarget, MariaDbTarget, MySqlTarget, SqliteTarget);
