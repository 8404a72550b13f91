//! The databases that an inbox can live in, and all that differs between them.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Database, pool::PoolConnection};
use sqlx_core::transaction::TransactionManager;

pub use crate::statements::Dialect;

/// A boxed future of a statement.
#[doc(hidden)]
pub type Answer<'c, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, sqlx::Error>> + Send + 'c>>;

/// A database that an inbox can live in: `sqlx::Postgres`, `sqlx::MySql` (MariaDB, too) or `sqlx::Sqlite`. Sealed.
pub trait InboxDatabase: Backend {}

impl<DB: Backend> InboxDatabase for DB {}

/// A parameter of a statement.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Value {
    Int(i64),
    Text(String),
    /// An id or a group, which MySQL keeps as bytes.
    Exact(String),
    /// Ids.
    List(Vec<String>),
}

/// A column of a result; `Bytes` are a text.
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
    pub(crate) ints: Vec<Option<i64>>,
}

/// What a statement has done.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    pub(crate) rows: u64,
    /// Only on MySQL.
    pub(crate) last_insert_id: u64,
}

/// One sqlx database.
#[doc(hidden)]
pub trait Backend: Database + sealed::Sealed {
    /// The fragments of its statements.
    const DIALECT: &'static Dialect;

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

    /// Takes messages; those that were taken, or `None` if all were.
    fn take<'c>(
        conn: &'c mut Self::Connection,
        statements: &'c crate::core::Shared,
        values: [Value; 4],
        ids: Vec<String>,
    ) -> Answer<'c, Option<Vec<String>>>;

    /// Borrows a connection and opens a transaction on it.
    fn begin(conn: &mut PoolConnection<Self>) -> Answer<'_, ()> {
        let sql = sqlx::SqlSafeStr::into_sql_str(Self::DIALECT.begin);
        Box::pin(Self::TransactionManager::begin(conn, Some(sql)))
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
                                let text: Option<Vec<u8>> = sqlx::Row::try_get_unchecked(&row, column)?;
                                let text = text.unwrap_or_default();
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

/// The same on databases that tell in the answer of the insert what was taken.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
macro_rules! take_returning {
    () => {
        fn take<'c>(
            conn: &'c mut <Self as Database>::Connection,
            shared: &'c crate::core::Shared,
            values: [Value; 4],
            ids: Vec<String>,
        ) -> Answer<'c, Option<Vec<String>>> {
            Box::pin(async move {
                let all = ids.len();
                let values = values.into_iter().chain([Value::List(ids)]).collect();
                let sql = Arc::clone(&shared.take);
                let taken = Self::rows(conn, sql, values, &[Kind::Text], shared.named).await?;
                let taken: Vec<String> = taken.into_iter().flat_map(|row| row.texts).collect();
                Ok((taken.len() < all).then_some(taken))
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
