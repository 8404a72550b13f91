//! A new ticket: the statements that draw its token and queue it.

use std::time::Duration;

use keylane_sql::{Family, Kind, SqlDatabase, Value};
use sqlx_core::transaction::TransactionManager;

use crate::statements::Statements;

/// The columns of a new ticket.
#[derive(Clone, Debug)]
pub(crate) struct NewTicket {
    pub(crate) resource: String,
    pub(crate) ticket: String,
    pub(crate) client: String,
    pub(crate) owner: String,
    pub(crate) lease: Duration,
}

/// Draws the next token of a resource. The row of the resource stays locked until the transaction ends.
pub(crate) async fn draw<DB: SqlDatabase>(
    conn: &mut DB::Connection,
    sql: &Statements,
    resource: &str,
    named: bool,
) -> Result<i64, sqlx::Error> {
    let values = vec![Value::Exact(resource.to_owned())];
    match DB::DIALECT.family {
        Family::MySql => {
            let drawn = DB::execute(conn, &sql.draw, values, named).await?.last_insert_id;
            i64::try_from(drawn).map_err(|_| sqlx::Error::RowNotFound)
        }
        Family::Postgres | Family::Sqlite => token::<DB>(conn, &sql.draw, values, named).await,
    }
}

/// Draws a token and queues the ticket with it, in a transaction or in one statement. Returns the token.
pub(crate) async fn queue<DB: SqlDatabase>(
    conn: &mut DB::Connection,
    sql: &Statements,
    new: &NewTicket,
    named: bool,
) -> Result<i64, sqlx::Error> {
    let resource = Value::Exact(new.resource.clone());
    let rest = [
        Value::Text(new.ticket.clone()),
        Value::Text(new.client.clone()),
        Value::Text(new.owner.clone()),
        Value::millis(new.lease),
    ];
    if DB::DIALECT.family == Family::Postgres {
        return token::<DB>(conn, &sql.queue, [resource].into_iter().chain(rest).collect(), named).await;
    }
    let begin = sqlx::SqlSafeStr::into_sql_str(DB::DIALECT.begin);
    DB::TransactionManager::begin(conn, Some(begin)).await?;
    let token = draw::<DB>(conn, sql, &new.resource, named).await?;
    let values = [resource, Value::Int(token)].into_iter().chain(rest).collect();
    DB::execute(conn, &sql.queue, values, named).await?;
    DB::TransactionManager::commit(conn).await?;
    Ok(token)
}

/// The token that a statement returns as a row.
async fn token<DB: SqlDatabase>(
    conn: &mut DB::Connection,
    sql: &str,
    values: Vec<Value>,
    named: bool,
) -> Result<i64, sqlx::Error> {
    let rows = DB::query(conn, sql, values, &[Kind::Int], named).await?;
    rows.first().and_then(|row| row.int(0)).ok_or(sqlx::Error::RowNotFound)
}
