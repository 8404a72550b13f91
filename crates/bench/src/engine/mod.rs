//! The databases as a hand-written consumer sees them.
//!
//! An expert would write these statements on the tables of the library: they begin at the head of the pending
//! set, read all columns that a handler gets, and delete many records at once.

mod census;
mod insert;
mod mysql;
mod postgres;
mod sqlite;

use std::future::Future;

use uuid::Uuid;

use super::{Result, tally::Event};
pub(crate) use census::Census;
pub(crate) use insert::{Insert, Row};

/// How a consumer's connection is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    /// The defaults of the server: commits wait for the disk.
    Plain,
    /// Commits do not wait for the disk, which is the library's default for its outcomes.
    Relaxed,
    /// As `Relaxed`, and the planner can choose only the primary key.
    Pinned,
}

/// A decoded record.
pub(crate) struct Received {
    pub(super) id: i64,
    pub(super) event_id: Uuid,
    pub(super) key: String,
    pub(super) event: Event,
}

/// A database that can be measured.
pub(crate) trait Engine: Census + Insert {
    /// A row of [`fetch`](Self::fetch).
    type Row: Send + Sync;
    /// The numbers of connections with which to take records one by one.
    const SINGLY: &'static [usize];
    /// The end of a SELECT that locks its rows and leaves out those that are locked.
    const SKIP_LOCKED: &'static str = "FOR UPDATE SKIP LOCKED";
    /// The time in thirty seconds.
    const IN_HALF_A_MINUTE: &'static str;
    /// Whether a transaction that has written keeps out all other writers.
    const ONE_WRITER: bool = false;
    /// Lets a connection wait for other writers as long as a large write of the bench can take.
    const WAIT_FOR_WRITERS: &'static str = "SELECT 1";
    /// Begins a transaction that writes.
    const BEGIN: &'static str;
    /// Begins a transaction with one snapshot for all its reads, and takes the snapshot.
    const BEGIN_SNAPSHOT: &'static str;
    /// Reads the statements that drop everything whose name has the prefix.
    const DROPS: &'static str;
    /// Creates the table that transactional handlers write to.
    const CREATE_EFFECT: &'static str = "CREATE TABLE keylane_bench_effect \
         (record_key VARCHAR(255) NOT NULL PRIMARY KEY, applied BIGINT NOT NULL)";
    /// Sums up the effects of transactional handlers.
    const EFFECTS: &'static str;
    /// Empties the tables.
    const CLEAR: &'static [&'static str];
    /// Whether the database can notify other processes.
    const NOTIFIES: bool = false;
    /// Counts the deadlocks so far. `None` if the server does not tell.
    const DEADLOCKS: Option<&'static str> = None;
    /// Counts the sessions that have waited for a lock longer than 100 ms and still wait, if the server tells.
    const LOCK_WAITS: Option<&'static str> = None;
    /// Brings statistics up to date and removes old versions of rows.
    const REFRESH: &'static [&'static str];

    /// Reads how large the table of records is with its indexes.
    const RECORD_BYTES: &'static str;
    /// Takes statistics now, and turns off later ones for this table.
    const FREEZE_STATISTICS: &'static [&'static str];

    /// Opens a connection with the options of the pool.
    fn connect(pool: &Self::Pool) -> impl Future<Output = Result<Self::Connection>> + Send;

    /// The address of the database, with all that is needed to connect.
    fn url(pool: &Self::Pool) -> String;

    /// The statements that set up a session.
    fn session(session: Session) -> &'static str;

    /// Begins a transaction that writes, by way of sqlx, so that sqlx knows of it.
    fn begin_work(conn: &mut Self::Connection) -> impl Future<Output = Result<()>> + Send;

    /// Commits such a transaction.
    fn commit_work(conn: &mut Self::Connection) -> impl Future<Output = Result<()>> + Send;

    /// Runs statements as they are.
    fn execute(
        conn: &mut Self::Connection,
        sql: impl Into<String> + Send,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Reads one number.
    fn number(conn: &mut Self::Connection, sql: &'static str) -> impl Future<Output = Result<i64>> + Send;

    /// Reads a column of numbers.
    fn numbers(conn: &mut Self::Connection, sql: String) -> impl Future<Output = Result<Vec<i64>>> + Send;

    /// Reads records by a statement with [`COLUMNS`].
    fn rows(conn: &mut Self::Connection, sql: String) -> impl Future<Output = Result<Vec<Self::Row>>> + Send;

    /// Reads a column of texts.
    fn texts(
        conn: &mut Self::Connection,
        sql: &'static str,
    ) -> impl Future<Output = Result<Vec<String>>> + Send;

    /// Reads pending records by id, without those in flight.
    fn fetch(
        conn: &mut Self::Connection,
        in_flight: &[i64],
        limit: i64,
    ) -> impl Future<Output = Result<Vec<Self::Row>>> + Send;

    /// Locks one pending record that nobody else has locked.
    fn claim(conn: &mut Self::Connection) -> impl Future<Output = Result<Option<Self::Row>>> + Send;

    /// The id of a record.
    fn id(row: &Self::Row) -> Result<i64>;

    /// Decodes a record.
    fn receive(row: &Self::Row) -> Result<Received>;

    /// Deletes handled records.
    fn delete(conn: &mut Self::Connection, ids: &[i64]) -> impl Future<Output = Result<()>> + Send;

    /// Writes what a transactional handler writes.
    fn add_effect(conn: &mut Self::Connection, key: &str) -> impl Future<Output = Result<()>> + Send;

    /// The server's process, if it is on this machine.
    fn server_process(conn: &mut Self::Connection) -> impl Future<Output = Result<Option<u32>>> + Send;

    /// How many bytes of log the server has written so far. `None` if it does not tell.
    fn log_position(_: &mut Self::Connection) -> impl Future<Output = Result<Option<i64>>> + Send {
        async { Ok(None) }
    }
}

/// The same tokens for each sqlx driver.
macro_rules! by_sqlx {
    ($row:ty) => {
        type Row = $row;

        async fn connect(pool: &Self::Pool) -> Result<Self::Connection> {
            Ok(ConnectOptions::connect(&*pool.connect_options()).await?)
        }

        fn url(pool: &Self::Pool) -> String {
            pool.connect_options().to_url_lossy().to_string()
        }

        async fn begin_work(conn: &mut Self::Connection) -> Result<()> {
            use sqlx::SqlSafeStr;
            use sqlx_core::transaction::TransactionManager;
            let begin = Some(Self::BEGIN.into_sql_str());
            Ok(<Self as sqlx::Database>::TransactionManager::begin(conn, begin).await?)
        }

        async fn commit_work(conn: &mut Self::Connection) -> Result<()> {
            use sqlx_core::transaction::TransactionManager;
            Ok(<Self as sqlx::Database>::TransactionManager::commit(conn).await?)
        }

        async fn execute(conn: &mut Self::Connection, sql: impl Into<String> + Send) -> Result<()> {
            sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(conn).await?;
            Ok(())
        }

        async fn number(conn: &mut Self::Connection, sql: &'static str) -> Result<i64> {
            Ok(sqlx::query_scalar(sql).fetch_one(conn).await?)
        }

        async fn numbers(conn: &mut Self::Connection, sql: String) -> Result<Vec<i64>> {
            let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await?;
            rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
        }

        async fn texts(conn: &mut Self::Connection, sql: &'static str) -> Result<Vec<String>> {
            Ok(sqlx::query_scalar(sql).fetch_all(conn).await?)
        }

        fn id(row: &$row) -> Result<i64> {
            Ok(row.try_get("id")?)
        }

        fn receive(row: &$row) -> Result<Received> {
            Ok(Received {
                id: row.try_get("id")?,
                event_id: row.try_get("event_id")?,
                // MySQL's key is a column of bytes, in which sqlx expects no text.
                key: row.try_get_unchecked("record_key")?,
                event: serde_json::from_slice(row.try_get("payload")?)?,
            })
        }
    };
}

/// The columns of a record that a handler gets.
macro_rules! record_columns {
    () => {
        "id, event_id, partition_no, record_key, handler, record_type, content_type, payload, headers, attempts"
    };
}

/// The columns of a record that a handler gets, as a text.
pub(crate) const COLUMNS: &str = record_columns!();

use by_sqlx;
use record_columns;
