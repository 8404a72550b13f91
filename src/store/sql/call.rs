//! Calls of a database: each has a time limit, and each error has a class that says what to do about it.

use std::{future::Future, sync::Arc, time::Duration};

use sqlx::AssertSqlSafe;

use super::{
    cause,
    driver::{Driver, Kind, Row, Value},
};
use crate::store::{ErrorClass, StoreError};

/// Runs a piece of work on a database within a time limit.
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

/// Classifies an error of sqlx. The dialect's table classifies errors of the server; any other error is a
/// broken connection, a value that does not fit, or a mistake of setup.
pub(crate) fn store_error<D: Driver>(call: &'static str, error: sqlx::Error) -> StoreError {
    let class = match &error {
        sqlx::Error::Database(server) => D::class_of(&**server),
        sqlx::Error::Configuration(_) | sqlx::Error::Migrate(_) | sqlx::Error::Tls(_) => ErrorClass::Setup,
        // The certificate of the server is not trusted, or the server does not trust this client.
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

/// Runs one query.
pub(crate) async fn query<D: Driver>(
    conn: &mut D::Connection,
    sql: AssertSqlSafe<Arc<str>>,
    values: Vec<Value>,
    kinds: &'static [Kind],
) -> Result<Vec<Row>, sqlx::Error> {
    D::query(conn, sql, values, kinds).await
}

/// Opens a transaction that writes. If later work fails, the connection is closed, and with it the
/// transaction.
pub(crate) async fn begin<D: Driver>(conn: &mut D::Connection) -> Result<(), sqlx::Error> {
    D::script(conn, AssertSqlSafe(Arc::from(D::DIALECT.begin))).await
}

/// Commits the transaction.
pub(crate) async fn commit<D: Driver>(conn: &mut D::Connection) -> Result<(), sqlx::Error> {
    D::script(conn, AssertSqlSafe(Arc::from("COMMIT"))).await
}

/// Rolls the transaction back, so that the connection can be kept.
pub(crate) async fn rollback<D: Driver>(conn: &mut D::Connection) -> Result<(), sqlx::Error> {
    D::script(conn, AssertSqlSafe(Arc::from("ROLLBACK"))).await
}
