//! New connections of the outbox: the statements of the user run first, so that they can undo no setting of the
//! workers.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::{
    cause,
    dialect::Family,
    driver::{Driver, Session},
};
use crate::store::SchemaError;

const LEFT_OPEN: &str = "or one before it leaves a transaction open: leave out BEGIN and autocommit = 0";
const NOT_FOR_SQLITE: &str = "is not for SQLite: set pragmas in the options of the pool";

/// Opens a connection, runs the statements of the user on it, and sets it up for its role.
pub(super) async fn connect<D: Driver>(
    pool: &D::Pool,
    session: Session,
    on_connect: &[String],
) -> Result<D::Connection, sqlx::Error> {
    let mut conn = D::open_session(pool, session).await?;
    for (place, statement) in on_connect.iter().enumerate() {
        run::<D>(&mut conn, statement).await.map_err(|error| at(place, error))?;
    }
    if let Some(last) = on_connect.len().checked_sub(1) {
        // Within a transaction of the user nothing that the workers write would be committed.
        let open = D::in_transaction(&mut conn).await;
        if open.map_err(|error| sqlx::Error::Io(std::io::Error::other(error)))? {
            return Err(at(last, Failure::Mistake(LEFT_OPEN.to_owned())));
        }
    }
    D::set_up(&mut conn, session).await?;
    Ok(conn)
}

/// Why a statement has not run.
enum Failure {
    /// Waiting does not fix it.
    Mistake(String),
    /// The server is away or busy.
    Passing(sqlx::Error),
}

async fn run<D: Driver>(conn: &mut D::Connection, statement: &str) -> Result<(), Failure> {
    if D::FAMILY == Family::Sqlite {
        return Err(Failure::Mistake(NOT_FOR_SQLITE.to_owned()));
    }
    let Err(error) = D::script(conn, AssertSqlSafe(Arc::from(statement))).await else { return Ok(()) };
    let sqlx::Error::Database(refusal) = &error else { return Err(Failure::Passing(error)) };
    match D::class_of(&**refusal).may_pass() {
        true => Err(Failure::Passing(error)),
        false => Err(Failure::Mistake(format!("was refused: {}", cause::line::<D>(&error)))),
    }
}

fn at(place: usize, failure: Failure) -> sqlx::Error {
    match failure {
        Failure::Mistake(problem) => {
            sqlx::Error::Configuration(Box::new(SchemaError::OnConnect { place, problem }))
        }
        Failure::Passing(error) => error,
    }
}
