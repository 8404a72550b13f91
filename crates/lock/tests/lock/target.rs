//! The four databases that every case runs on.

use std::{
    env,
    future::Future,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use keylane_lock::{LockClient, LockClientBuilder, LockDatabase};
use sqlx::{
    AssertSqlSafe, MySql, Postgres, Row, Sqlite,
    mysql::MySqlPoolOptions,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};

static NUMBER: AtomicU32 = AtomicU32::new(0);
/// Connections that a case uses at most.
pub(crate) const CONNECTIONS: u32 = 8;
/// How long a case waits at most for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The lease of most cases, which wait for the end of some.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

pub(crate) type Connection<T> = <<T as Target>::Db as sqlx::Database>::Connection;

/// A database under test.
pub(crate) trait Target: Sized + 'static {
    type Db: LockDatabase;
    /// The name of the level that a session is told.
    const ISOLATION: &str;
    /// A time long ago, as the tables have it.
    const PAST: &str = "'2020-01-01 00:00:00'";
    /// How a transaction begins that writes.
    const BEGIN: &str = "BEGIN";

    /// A pool whose sessions run this statement first. `None`: skipped, with a printed notice.
    fn open(name: &str, first: String) -> impl Future<Output = Option<sqlx::Pool<Self::Db>>>;
    /// Runs statements as they are.
    fn execute(
        conn: &mut Connection<Self>,
        sql: String,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    /// Reads one number.
    fn number(pool: &sqlx::Pool<Self::Db>, sql: String) -> impl Future<Output = i64>;
}

/// A client with tables of its own.
pub(crate) struct Stage<T: Target> {
    pub(crate) locks: LockClient<T::Db>,
    pub(crate) prefix: String,
    level: String,
}

impl<T: Target> Stage<T> {
    pub(crate) async fn new() -> Option<Self> {
        Self::with("READ COMMITTED", |builder| builder).await
    }

    pub(crate) async fn with(
        level: &str,
        settings: impl FnOnce(LockClientBuilder<T::Db>) -> LockClientBuilder<T::Db>,
    ) -> Option<Self> {
        let prefix = format!("tl{}_{}_", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let stage = Self::at(prefix, level, settings).await?;
        stage.locks.migrate().await.unwrap();
        stage
            .execute("CREATE TABLE {}register (name VARCHAR(20) PRIMARY KEY, value BIGINT, fence BIGINT)")
            .await;
        Some(stage)
    }

    /// Another client of the same tables, as another process has it.
    pub(crate) async fn at(
        prefix: String,
        level: &str,
        settings: impl FnOnce(LockClientBuilder<T::Db>) -> LockClientBuilder<T::Db>,
    ) -> Option<Self> {
        let pool = T::open(&prefix, T::ISOLATION.replace('@', level)).await?;
        let builder = LockClient::builder(pool).table_prefix(prefix.as_str()).lease(LEASE);
        let locks = settings(builder).build().unwrap();
        Some(Self { locks, prefix, level: level.to_owned() })
    }

    pub(crate) async fn other(&self) -> Self {
        Self::at(self.prefix.clone(), &self.level, |builder| builder).await.unwrap()
    }

    /// The number that this reads, where `{}` is the prefix.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        T::number(self.locks.pool(), sql.replace("{}", &self.prefix)).await
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.try_execute(sql).await.unwrap();
    }

    pub(crate) async fn try_execute(&self, sql: &str) -> Result<(), sqlx::Error> {
        let mut conn = self.locks.pool().acquire().await?;
        T::execute(&mut conn, sql.replace("{}", &self.prefix)).await
    }

    /// Begins a transaction that writes.
    pub(crate) async fn begin(&self) -> sqlx::Transaction<'static, T::Db> {
        self.locks.pool().begin_with(T::BEGIN).await.unwrap()
    }

    /// Returns when so many stand in the queue, the holder among them.
    pub(crate) async fn queued(&self, resource: &str, wanted: usize) {
        let stands = async {
            while self.locks.queue(resource).await.unwrap().len() != wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let stood = tokio::time::timeout(PATIENCE, stands).await;
        assert!(stood.is_ok(), "{:?}", self.locks.queue(resource).await);
    }

    pub(crate) async fn end(self) {
        self.execute("DROP TABLE {}register; DROP TABLE {}ticket; DROP TABLE {}resource; DROP TABLE {}meta")
            .await;
        self.locks.pool().close().await;
        for ending in ["", "-wal", "-shm"] {
            drop(std::fs::remove_file(format!("{}{ending}", sqlite_file(&self.prefix))));
        }
    }
}

pub(crate) struct OnPostgres;
pub(crate) struct OnMariaDb;
pub(crate) struct OnMySql;
pub(crate) struct OnSqlite;

pub(crate) fn url(variable: &str) -> String {
    env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `eval \"$(dev/services env)\"` first"))
}

fn sqlite_file(name: &str) -> String {
    env::temp_dir().join(format!("keylane-lock-{name}.db")).to_string_lossy().into_owned()
}

macro_rules! by_sql {
    ($database:ty) => {
        type Db = $database;

        async fn execute(conn: &mut Connection<Self>, sql: String) -> Result<(), sqlx::Error> {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await.map(drop)
        }

        async fn number(pool: &sqlx::Pool<Self::Db>, sql: String) -> i64 {
            sqlx::query(AssertSqlSafe(sql)).fetch_one(pool).await.unwrap().get::<i64, _>(0)
        }
    };
}

macro_rules! first {
    ($options:ty, $first:expr) => {{
        let first: String = $first;
        <$options>::new().max_connections(CONNECTIONS).after_connect(move |conn, _| {
            let first = first.clone();
            Box::pin(async move { sqlx::raw_sql(AssertSqlSafe(first)).execute(conn).await.map(drop) })
        })
    }};
}

impl Target for OnPostgres {
    const ISOLATION: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL @";

    async fn open(name: &str, first: String) -> Option<sqlx::PgPool> {
        let options: PgConnectOptions = url("KEYLANE_TEST_POSTGRES_URL").parse().unwrap();
        Some(first!(PgPoolOptions, first).connect_with(options.application_name(name)).await.unwrap())
    }

    by_sql!(Postgres);
}

impl Target for OnMariaDb {
    const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL @";

    async fn open(_: &str, first: String) -> Option<sqlx::MySqlPool> {
        Some(first!(MySqlPoolOptions, first).connect(&url("KEYLANE_TEST_MARIADB_URL")).await.unwrap())
    }

    by_sql!(MySql);
}

impl Target for OnMySql {
    const ISOLATION: &str = OnMariaDb::ISOLATION;

    async fn open(_: &str, first: String) -> Option<sqlx::MySqlPool> {
        if let Ok(reason) = env::var("KEYLANE_TEST_MYSQL_SKIP") {
            eprintln!("MySQL is skipped: {reason}");
            return None;
        }
        Some(first!(MySqlPoolOptions, first).connect(&url("KEYLANE_TEST_MYSQL_URL")).await.unwrap())
    }

    by_sql!(MySql);
}

impl Target for OnSqlite {
    const ISOLATION: &str = "SELECT '@'";
    const PAST: &str = "1577836800000000";
    const BEGIN: &str = "BEGIN IMMEDIATE";

    async fn open(name: &str, _: String) -> Option<sqlx::SqlitePool> {
        let options = SqliteConnectOptions::new()
            .filename(sqlite_file(name))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(20));
        Some(SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await.unwrap())
    }

    by_sql!(Sqlite);
}

/// Runs one generic case on each database.
macro_rules! on_each {
    ($($case:ident),* $(,)?) => {$(
        mod $case {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                super::$case::<crate::target::OnPostgres>().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mariadb() {
                super::$case::<crate::target::OnMariaDb>().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mysql() {
                super::$case::<crate::target::OnMySql>().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$case::<crate::target::OnSqlite>().await;
            }
        }
    )*};
}

pub(crate) use on_each;
