//! Statements on a database of sqlx.

use std::{pin::Pin, sync::Arc};

use sqlx::{AssertSqlSafe, Database, Pool};

use crate::{
    dialect::{Dialect, Family},
    value::{Cell, Executed, Kind, Row, Value, fill},
};

/// A boxed future of a statement.
pub type Answer<'c, T> = Pin<Box<dyn Future<Output = Result<T, sqlx::Error>> + Send + 'c>>;

/// A database of sqlx: `sqlx::Postgres`, `sqlx::MySql` (MariaDB, too) or `sqlx::Sqlite`. Sealed.
pub trait SqlDatabase: Database + sealed::Sealed {
    /// The fragments of its statements.
    const DIALECT: &'static Dialect;

    /// Whether the server may keep statements of this pool by names. A pooler in front of PostgreSQL may lose the
    /// names. Behind such a pooler, set `statement-cache-capacity=0`.
    fn may_name(_: &Pool<Self>) -> bool {
        true
    }

    /// Runs a statement. With `named`, the server keeps the statement.
    fn execute<'c>(
        conn: &'c mut Self::Connection,
        sql: &str,
        values: Vec<Value>,
        named: bool,
    ) -> Answer<'c, Executed>;

    /// Runs a query whose columns are of these kinds. With `named`, the server keeps the statement.
    fn query<'c>(
        conn: &'c mut Self::Connection,
        sql: &str,
        values: Vec<Value>,
        kinds: &'static [Kind],
        named: bool,
    ) -> Answer<'c, Vec<Row>>;

    /// Runs statements without parameters as text.
    fn script<'c>(conn: &'c mut Self::Connection, sql: &str) -> Answer<'c, ()>;

    /// Whether a repetition may succeed after what the database has answered: a deadlock, a conflict of snapshots, a
    /// lock that was waited for too long.
    #[doc(hidden)]
    fn is_passing(error: &dyn sqlx::error::DatabaseError) -> bool;

    /// The code of the answer, as the manual of the server lists it.
    #[doc(hidden)]
    fn code_of(error: &dyn sqlx::error::DatabaseError) -> String {
        error.code().unwrap_or_default().into_owned()
    }

    /// The constraint that the answer names.
    #[doc(hidden)]
    fn constraint_of(error: &dyn sqlx::error::DatabaseError) -> Option<String> {
        error.constraint().map(str::to_owned)
    }

    /// Whether a repetition may succeed by itself: after a passing state of the database, and after a lost
    /// connection.
    fn is_retryable(error: &sqlx::Error) -> bool {
        match error {
            sqlx::Error::Database(error) => Self::is_passing(&**error),
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::Protocol(_)
            | sqlx::Error::WorkerCrashed => true,
            _ => false,
        }
    }

    /// Whether the database refused the statement, and would refuse it again.
    fn is_refusal(error: &sqlx::Error) -> bool {
        matches!(error, sqlx::Error::Database(_)) && !Self::is_retryable(error)
    }
}

/// One of three values: that of the family of this database.
pub fn by_family<DB: SqlDatabase, T>(postgres: T, mysql: T, sqlite: T) -> T {
    match DB::DIALECT.family {
        Family::Postgres => postgres,
        Family::MySql => mysql,
        Family::Sqlite => sqlite,
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

/// The methods whose code is the same for all databases.
macro_rules! statements_of {
    ($executed:expr, $bind:expr) => {
        fn execute<'c>(
            conn: &'c mut <Self as Database>::Connection,
            sql: &str,
            values: Vec<Value>,
            named: bool,
        ) -> Answer<'c, Executed> {
            let (sql, named) = fill(sql, &values, named);
            Box::pin(async move {
                let query = values.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), $bind);
                let executed: fn(&<Self as Database>::QueryResult) -> Executed = $executed;
                Ok(executed(&query.persistent(named).execute(conn).await?))
            })
        }

        fn query<'c>(
            conn: &'c mut <Self as Database>::Connection,
            sql: &str,
            values: Vec<Value>,
            kinds: &'static [Kind],
            named: bool,
        ) -> Answer<'c, Vec<Row>> {
            let (sql, named) = fill(sql, &values, named);
            Box::pin(async move {
                let query = values.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), $bind);
                let rows = query.persistent(named).fetch_all(conn).await?;
                rows.iter().map(|row| decoded(row, kinds)).collect()
            })
        }

        fn script<'c>(conn: &'c mut <Self as Database>::Connection, sql: &str) -> Answer<'c, ()> {
            let sql: Arc<str> = sql.into();
            Box::pin(async move { sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await.map(drop) })
        }
    };
}

/// The row of a result, cell by cell.
fn decoded<R: sqlx::Row>(row: &R, kinds: &[Kind]) -> Result<Row, sqlx::Error>
where
    usize: sqlx::ColumnIndex<R>,
    for<'r> i64: sqlx::Decode<'r, R::Database>,
    for<'r> Vec<u8>: sqlx::Decode<'r, R::Database>,
{
    let mut cells = Vec::with_capacity(kinds.len());
    for (column, kind) in kinds.iter().enumerate() {
        if let Kind::Int = kind {
            cells.push(row.try_get_unchecked::<Option<i64>, _>(column)?.map_or(Cell::Null, Cell::Int));
            continue;
        }
        let bytes: Option<Vec<u8>> = row.try_get_unchecked(column)?;
        cells.push(bytes.map_or(Cell::Null, |bytes| match kind {
            Kind::Text => Cell::Text(String::from_utf8_lossy(&bytes).into_owned()),
            _ => Cell::Bytes(bytes),
        }));
    }
    Ok(Row(cells))
}

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
