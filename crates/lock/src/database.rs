//! The databases that locks can live in, and all that differs between them.

use std::{pin::Pin, sync::Arc, time::Duration};

use sqlx::{AssertSqlSafe, Database};
use sqlx_core::transaction::TransactionManager;

pub use crate::statements::Dialect;
use crate::{
    signals::{Ear, Ears},
    statements::Statements,
};

/// A boxed future.
#[doc(hidden)]
pub type Boxed<'c, T> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;
/// A boxed future of a statement.
#[doc(hidden)]
pub type Answer<'c, T> = Boxed<'c, Result<T, sqlx::Error>>;

/// A database that locks can live in: `sqlx::Postgres`, `sqlx::MySql` (MariaDB, too) or `sqlx::Sqlite`. Sealed.
pub trait LockDatabase: Backend {}

impl<DB: Backend> LockDatabase for DB {}

/// A parameter of a statement.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Value {
    Int(i64),
    Text(String),
    /// The name of a resource, which MySQL keeps as bytes.
    Exact(String),
    /// Tickets.
    List(Vec<String>),
}

/// A column of a result; `Text` may be bytes.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Text,
    Int,
}

/// A decoded row.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub(crate) texts: Vec<String>,
    pub(crate) ints: Vec<i64>,
}

/// What a statement has done.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    pub(crate) rows: u64,
    /// Only on MySQL.
    pub(crate) last_insert_id: u64,
}

/// What a new ticket says of itself.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct NewTicket {
    pub(crate) resource: String,
    pub(crate) ticket: String,
    pub(crate) client: String,
    pub(crate) owner: String,
    pub(crate) lease_ms: i64,
}

/// How a client learns that a ticket of another client has gone.
#[doc(hidden)]
pub trait Wake<DB: Database>: Send + Sync + 'static {
    /// Opens nothing yet. `direct` leads to the server itself, `pool` may lead through a pooler.
    fn new(direct: &sqlx::Pool<DB>, pool: &sqlx::Pool<DB>, ears: Arc<Ears>) -> Self;

    /// A ticket of this client is about to be queued.
    fn open(&self, _ticket: &str) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// A ticket of this client has been deleted.
    fn close(&self, _ticket: &str) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The tickets of this client, from time to time.
    fn keep(&self, _tickets: &[&str]) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Returns when the ticket of another client may have gone, and after `longest` at the latest. Where no
    /// signal can come, after a poll interval.
    fn wait(&self, ear: &Ear, ticket: &str, longest: Duration) -> impl Future<Output = ()> + Send;
}

/// One sqlx database.
#[doc(hidden)]
pub trait Backend: Database + sealed::Sealed {
    /// The fragments of its statements.
    const DIALECT: &'static Dialect;

    type Wake: Wake<Self>;

    /// Whether statements may have names on the server.
    fn may_name(_: &sqlx::Pool<Self>) -> bool {
        true
    }

    /// Runs a statement; `named` lets the server keep it.
    fn run<'c>(
        conn: &'c mut Self::Connection,
        sql: Arc<str>,
        values: Vec<Value>,
        named: bool,
    ) -> Answer<'c, Ran>;

    /// Runs a query; the texts and the numbers of each row, each kind in its order.
    fn rows<'c>(
        conn: &'c mut Self::Connection,
        sql: Arc<str>,
        values: Vec<Value>,
        kinds: &'static [Kind],
        named: bool,
    ) -> Answer<'c, Vec<Row>>;

    /// Runs statements without parameters as text.
    fn script<'c>(conn: &'c mut Self::Connection, sql: String) -> Answer<'c, ()>;

    /// Whether a repetition may succeed: a deadlock, a conflict of snapshots, a lock that was waited for too long.
    fn may_retry(error: &dyn sqlx::error::DatabaseError) -> bool;

    /// Draws the next token of a resource. Its row stays locked until the transaction ends.
    fn draw<'c>(
        conn: &'c mut Self::Connection,
        sql: &'c Statements,
        resource: &'c str,
        named: bool,
    ) -> Answer<'c, i64>;

    /// Draws a token and queues a ticket with it, in a transaction of its own; the token.
    fn queue<'c>(
        conn: &'c mut Self::Connection,
        sql: &'c Statements,
        new: &'c NewTicket,
        named: bool,
    ) -> Answer<'c, i64> {
        Box::pin(async move {
            let begin = sqlx::SqlSafeStr::into_sql_str(Self::DIALECT.begin);
            Self::TransactionManager::begin(conn, Some(begin)).await?;
            let token = Self::draw(conn, sql, &new.resource, named).await?;
            let values = vec![
                Value::Exact(new.resource.clone()),
                Value::Int(token),
                Value::Text(new.ticket.clone()),
                Value::Text(new.client.clone()),
                Value::Text(new.owner.clone()),
                Value::Int(new.lease_ms),
            ];
            Self::run(conn, sql.queue.as_str().into(), values, named).await?;
            Self::TransactionManager::commit(conn).await?;
            Ok(token)
        })
    }
}

mod sealed {
    pub trait Sealed {}

    #[cfg(feature = "postgres")]
    impl Sealed for sqlx::Postgres {}
    #[cfg(feature = "mysql")]
    impl Sealed for sqlx::MySql {}
    #[cfg(feature = "sqlite")]
    impl Sealed for sqlx::Sqlite {}
}

/// `run`, `rows` and `script`, which differ by types only.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
macro_rules! statements_of {
    ($database:ty, $ran:expr) => {
        fn run<'c>(
            conn: &'c mut <Self as Database>::Connection,
            sql: Arc<str>,
            values: Vec<Value>,
            named: bool,
        ) -> Answer<'c, Ran> {
            Box::pin(async move {
                let query = values.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), bind);
                let ran: fn(&<$database as Database>::QueryResult) -> Ran = $ran;
                Ok(ran(&query.persistent(named).execute(conn).await?))
            })
        }

        fn rows<'c>(
            conn: &'c mut <Self as Database>::Connection,
            sql: Arc<str>,
            values: Vec<Value>,
            kinds: &'static [Kind],
            named: bool,
        ) -> Answer<'c, Vec<Row>> {
            Box::pin(async move {
                let query = values.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), bind);
                let mut found = Vec::new();
                for row in query.persistent(named).fetch_all(conn).await? {
                    let mut decoded = Row::default();
                    for (column, kind) in kinds.iter().enumerate() {
                        match kind {
                            Kind::Int => decoded.ints.push(sqlx::Row::try_get_unchecked(&row, column)?),
                            Kind::Text => {
                                let text: Vec<u8> = sqlx::Row::try_get_unchecked(&row, column)?;
                                decoded.texts.push(String::from_utf8_lossy(&text).into_owned());
                            }
                        }
                    }
                    found.push(decoded);
                }
                Ok(found)
            })
        }

        fn script<'c>(conn: &'c mut <Self as Database>::Connection, sql: String) -> Answer<'c, ()> {
            Box::pin(async move { sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await.map(drop) })
        }
    };
}

/// `draw` on databases that return the token as a row.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
macro_rules! draw_returning {
    () => {
        fn draw<'c>(
            conn: &'c mut <Self as Database>::Connection,
            sql: &'c Statements,
            resource: &'c str,
            named: bool,
        ) -> Answer<'c, i64> {
            Box::pin(async move {
                let values = vec![Value::Exact(resource.to_owned())];
                let rows = Self::rows(conn, sql.draw.as_str().into(), values, &[Kind::Int], named).await?;
                rows.first().map(|row| row.ints[0]).ok_or(sqlx::Error::RowNotFound)
            })
        }
    };
}

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
