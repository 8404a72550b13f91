//! The store over sqlx: PostgreSQL, MySQL and MariaDB, SQLite.
//!
//! Statements are written once, in `statements/*.sql`, with fragments for what differs
//! ([`dialect`]); the few that differ as a whole stand in a folder of their database. A database is
//! one [`Driver`](driver::Driver).

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use self::{
    driver::{Driver, Kind, Role, Row, Session, Value},
    link::Link,
    proof::Proof,
    statements::Statements,
};
use super::{Bell, ErrorClass, Store, StoreError, StoreSettings};

mod admin;
#[cfg(feature = "postgres")]
mod bell;
mod cause;
mod cluster;
pub(crate) mod dialect;
pub(crate) mod driver;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod engine;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod files;
pub(crate) mod glue;
mod insert;
mod link;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod looks;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod proof;
mod purge;
mod records;
mod release;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod rows;
mod schema;
#[cfg(feature = "postgres")]
mod sessions;
mod settle;
#[cfg(feature = "sqlite")]
mod sqlite;
pub(crate) mod statements;
mod transactional;
pub(crate) mod work;

pub(crate) use insert::{insert, note_dedup_key};
pub(crate) use transactional::SqlTransactional;

/// A store on one sqlx database, over connections of its own.
pub(crate) struct SqlStore<D: Driver> {
    settings: StoreSettings,
    sql: Arc<Statements>,
    pool: D::Pool,
    poll: Link<D>,
    settle: Link<D>,
    control: Link<D>,
    /// For a process that only schedules: it reads the list of handlers.
    plain: Link<D>,
    proof: Proof,
    extra: ExtraSql,
}

/// Statements that only one database has.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExtraSql {
    /// Guard and completions in one statement (PostgreSQL).
    pub(crate) settle_at_once: Option<Arc<str>>,
    /// A beat and the view in one statement (PostgreSQL).
    pub(crate) beat_and_view: Option<Arc<str>>,
    /// What a sweep must still look at where nothing tells when an id is final (MySQL).
    pub(crate) late: Option<Late>,
    /// Keys of the strict order that can be cleared away (MySQL).
    pub(crate) unlocked_keys: Option<Arc<str>>,
}

/// The statements that find what was committed late.
#[cfg_attr(
    not(any(feature = "mysql", feature = "sqlite")),
    expect(dead_code, reason = "PostgreSQL tells when an id is final")
)]
#[derive(Clone, Debug)]
pub(crate) struct Late {
    /// Ids of pending records below some id, among so many rows.
    pub(crate) below: Arc<str>,
    /// The same, among any number of rows.
    pub(crate) below_apart: Arc<str>,
    /// Records by their ids.
    pub(crate) late: Arc<str>,
}

impl<D: Driver> SqlStore<D> {
    pub(crate) fn new(pool: D::Pool, settings: StoreSettings, extra: ExtraSql) -> Self {
        let sql = Arc::new(Statements::render(&D::DIALECT, D::FAMILY, &settings.tables));
        Self::over(pool, settings, sql, extra, Proof::default())
    }

    fn over(
        pool: D::Pool,
        settings: StoreSettings,
        sql: Arc<Statements>,
        extra: ExtraSql,
        proof: Proof,
    ) -> Self {
        let link = |role, async_commit| {
            let session = Session { role, timeout: settings.call_timeout, async_commit };
            Link::new(pool.clone(), session, proof.clone())
        };
        Self {
            poll: link(Role::Poll, false),
            settle: link(Role::Settle, settings.async_settle),
            control: link(Role::Control, false),
            plain: link(Role::Plain, false),
            settings,
            sql,
            pool,
            proof,
            extra,
        }
    }

    /// The only way to the database: runs `work` within the deadline. `work` borrows a connection
    /// from a [`Link`] and keeps it only at its end: if it fails, is cut off or is dropped, the
    /// connection is closed and nobody else ever gets it.
    async fn call<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, StoreError> {
        self.call_within(name, self.settings.call_timeout, work).await
    }

    async fn call_within<T>(
        &self,
        name: &'static str,
        limit: Duration,
        work: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, StoreError> {
        within::<D, T>(name, limit, work).await
    }
}

/// Runs a piece of work on a database within a limit of time.
pub(crate) async fn within<D: Driver, T>(
    name: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>> + Send,
) -> Result<T, StoreError> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(|error| store_error::<D>(name, error)),
        Err(_) => Err(StoreError::new(
            name,
            ErrorClass::Reconnect,
            format!("no answer within {} ms", limit.as_millis()),
        )),
    }
}

/// Sorts an error of sqlx: the server's by the dialect's table, all else is a broken connection
/// or a mistake of setup.
pub(crate) fn store_error<D: Driver>(call: &'static str, error: sqlx::Error) -> StoreError {
    let class = match &error {
        sqlx::Error::Database(server) => D::class_of(&**server),
        sqlx::Error::Configuration(_) | sqlx::Error::Migrate(_) | sqlx::Error::Tls(_) => ErrorClass::Setup,
        // A certificate that is not trusted, or a server that does not trust this client.
        sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => ErrorClass::Setup,
        sqlx::Error::PoolTimedOut => ErrorClass::Resource,
        sqlx::Error::Encode(_)
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::TypeNotFound { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. } => ErrorClass::Record,
        _ => ErrorClass::Reconnect,
    };
    let line = cause::line::<D>(&error).replace(char::is_control, " ");
    StoreError::told(call, class, error, line)
}

/// A rendered statement. Its text holds our own words, validated names and integers, nothing else.
pub(crate) fn safe(sql: &Arc<str>) -> AssertSqlSafe<Arc<str>> {
    AssertSqlSafe(Arc::clone(sql))
}

/// A rendered statement with its lists of integers filled in.
pub(crate) fn with_lists(sql: &str, lists: &[(&str, String)]) -> AssertSqlSafe<Arc<str>> {
    let mut sql = sql.to_owned();
    for (token, list) in lists {
        sql = sql.replace(token, list);
    }
    AssertSqlSafe(Arc::from(sql))
}

/// Runs one query.
pub(crate) async fn query<D: Driver>(
    conn: &mut D::Connection,
    sql: AssertSqlSafe<Arc<str>>,
    values: Vec<Value>,
    kinds: &'static [Kind],
) -> Result<Vec<Row>, sqlx::Error> {
    D::query(conn, sql, values, kinds).await
}

/// Opens a transaction that writes; the connection's fate decides about the rest.
pub(crate) async fn begin<D: Driver>(conn: &mut D::Connection) -> Result<(), sqlx::Error> {
    D::script(conn, AssertSqlSafe(Arc::from(D::DIALECT.begin))).await
}

/// Commits it.
pub(crate) async fn commit<D: Driver>(conn: &mut D::Connection) -> Result<(), sqlx::Error> {
    D::script(conn, AssertSqlSafe(Arc::from("COMMIT"))).await
}

/// Takes it back, so that the connection can be kept.
pub(crate) async fn rollback<D: Driver>(conn: &mut D::Connection) -> Result<(), sqlx::Error> {
    D::script(conn, AssertSqlSafe(Arc::from("ROLLBACK"))).await
}

#[async_trait]
impl<D: Driver> Store for SqlStore<D> {
    fn own_thread(&self) -> bool {
        true
    }

    fn for_heartbeat(&self) -> Arc<dyn Store> {
        let sql = Arc::clone(&self.sql);
        let (settings, extra) = (self.settings.clone(), self.extra.clone());
        Arc::new(Self::over(self.pool.clone(), settings, sql, extra, self.proof.clone()))
    }

    fn statements(&self) -> Vec<(&'static str, Arc<str>)> {
        self.sql.named()
    }

    async fn rest(&self, unused_for: Duration) {
        for link in [&self.poll, &self.settle, &self.control, &self.plain] {
            within::<D, _>("close", self.settings.call_timeout, async {
                link.rest(unused_for).await;
                Ok(())
            })
            .await
            .unwrap_or_default();
        }
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        D::bell(&self.pool, &self.settings)
    }
}
