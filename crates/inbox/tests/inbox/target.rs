//! The four databases that every case runs on.

use std::{
    env,
    future::Future,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use keylane_inbox::{Inbox, InboxDatabase};
use sqlx::{
    AssertSqlSafe, MySql, Postgres, Row, Sqlite,
    mysql::MySqlPoolOptions,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};

static NUMBER: AtomicU32 = AtomicU32::new(0);
/// Connections that a case uses at most.
pub(crate) const CONNECTIONS: u32 = 8;

pub(crate) type Connection<T> = <<T as Target>::Db as sqlx::Database>::Connection;

/// A database under test.
pub(crate) trait Target: Sized + 'static {
    type Db: InboxDatabase;
    /// The name of the level that a session is told.
    const ISOLATION: &str;
    /// A statement that ends the transaction it is in.
    const ENDS: &str = "COMMIT";
    /// A time long ago, as the tables have it.
    const PAST: &str = "'2020-01-01 00:00:00'";

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

/// An inbox with tables of its own, and a table of effects.
pub(crate) struct Stage<T: Target> {
    pub(crate) inbox: Inbox<T::Db>,
    pub(crate) prefix: String,
}

impl<T: Target> Stage<T> {
    pub(crate) async fn new() -> Option<Self> {
        Self::with("READ COMMITTED", |builder| builder).await
    }

    pub(crate) async fn with(
        level: &str,
        settings: impl FnOnce(keylane_inbox::InboxBuilder<T::Db>) -> keylane_inbox::InboxBuilder<T::Db>,
    ) -> Option<Self> {
        let prefix = format!("ti{}_{}_", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let stage = Self::at(prefix, level, settings).await?;
        stage.inbox.migrate().await.unwrap();
        let mut conn = stage.inbox.pool().acquire().await.unwrap();
        let table = format!("CREATE TABLE {}effect (event_id VARCHAR(255) NOT NULL)", stage.prefix);
        T::execute(&mut conn, table).await.unwrap();
        Some(stage)
    }

    /// The same tables again.
    pub(crate) async fn at(
        prefix: String,
        level: &str,
        settings: impl FnOnce(keylane_inbox::InboxBuilder<T::Db>) -> keylane_inbox::InboxBuilder<T::Db>,
    ) -> Option<Self> {
        let pool = T::open(&prefix, T::ISOLATION.replace('@', level)).await?;
        let inbox = settings(Inbox::builder(pool).table_prefix(prefix.as_str())).build().unwrap();
        Some(Self { inbox, prefix })
    }

    /// The effect of a message.
    pub(crate) async fn affect(&self, conn: &mut Connection<T>, event_id: &str) -> Result<(), sqlx::Error> {
        T::execute(conn, format!("INSERT INTO {}effect (event_id) VALUES ('{event_id}')", self.prefix)).await
    }

    pub(crate) async fn effects_of(&self, event_id: &str) -> i64 {
        self.count(&format!("{{}}effect WHERE event_id = '{event_id}'")).await
    }

    /// The rows of `FROM` this, where `{}` is the prefix.
    pub(crate) async fn count(&self, from: &str) -> i64 {
        let from = from.replace("{}", &self.prefix);
        T::number(self.inbox.pool(), format!("SELECT count(*) FROM {from}")).await
    }

    pub(crate) async fn messages(&self, condition: &str) -> i64 {
        self.count(&format!("{{}}message WHERE {condition}")).await
    }

    pub(crate) async fn execute(&self, sql: &str) {
        let mut conn = self.inbox.pool().acquire().await.unwrap();
        T::execute(&mut conn, sql.replace("{}", &self.prefix)).await.unwrap();
    }

    pub(crate) async fn end(self) {
        self.execute("DROP TABLE {}effect; DROP TABLE {}message; DROP TABLE {}meta").await;
        self.inbox.pool().close().await;
        for ending in ["", "-wal", "-shm"] {
            drop(std::fs::remove_file(format!("{}{ending}", sqlite_file(&self.prefix))));
        }
    }
}

pub(crate) struct OnPostgres;
pub(crate) struct OnMariaDb;
pub(crate) struct OnMySql;
pub(crate) struct OnSqlite;

fn url(variable: &str) -> String {
    env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `eval \"$(dev/services env)\"` first"))
}

fn sqlite_file(name: &str) -> String {
    env::temp_dir().join(format!("keylane-inbox-{name}.db")).to_string_lossy().into_owned()
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

    async fn open(_: &str, first: String) -> Option<sqlx::PgPool> {
        Some(first!(PgPoolOptions, first).connect(&url("KEYLANE_TEST_POSTGRES_URL")).await.unwrap())
    }

    by_sql!(Postgres);
}

impl Target for OnMariaDb {
    const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL @";
    const ENDS: &str = "CREATE TABLE {}ddl (id INT); DROP TABLE {}ddl";

    async fn open(_: &str, first: String) -> Option<sqlx::MySqlPool> {
        Some(first!(MySqlPoolOptions, first).connect(&url("KEYLANE_TEST_MARIADB_URL")).await.unwrap())
    }

    by_sql!(MySql);
}

impl Target for OnMySql {
    const ISOLATION: &str = OnMariaDb::ISOLATION;
    const ENDS: &str = OnMariaDb::ENDS;

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
            #[tokio::test]
            async fn postgres() {
                super::$case::<crate::target::OnPostgres>().await;
            }

            #[tokio::test]
            async fn mariadb() {
                super::$case::<crate::target::OnMariaDb>().await;
            }

            #[tokio::test]
            async fn mysql() {
                super::$case::<crate::target::OnMySql>().await;
            }

            #[tokio::test]
            async fn sqlite() {
                super::$case::<crate::target::OnSqlite>().await;
            }
        }
    )*};
}

pub(crate) use on_each;
