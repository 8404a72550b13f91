//! Whether an address keeps the session of a connection.
//!
//! A pooler in transaction mode lends a connection of the server to one client after another. A `LISTEN` stays on
//! such a connection, and what is notified there then reaches clients that do not understand it. No statement tells
//! whether there is such a pooler, so it is found by its behaviour.

use sqlx::{ConnectOptions, Connection, PgConnection, Row, postgres::PgConnectOptions};

/// How often two connections trade places. On a quiet pooler the first time shows it. On a busy pooler each time
/// shows it with a probability of at least a half.
const ROUNDS: usize = 16;
const BACKEND: &str = "SELECT pg_backend_pid()";
const BEGIN: &str = "BEGIN; SELECT pg_backend_pid()";
const ROLLBACK: &str = "ROLLBACK";
/// What a pooler in statement mode says to `BEGIN`, before it hangs up.
const NO_TRANSACTIONS: &str = "statement pooling mode";

/// Two connections begin and end transactions by turns. If sessions are kept, each connection stays on its own
/// process of the server. Nothing is set meanwhile that other clients could find.
pub(super) async fn are_kept(options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let (mut one, mut other) = (options.connect().await?, options.connect().await?);
    let kept = match stay(&mut one, &mut other).await {
        Err(sqlx::Error::Database(refusal)) if refusal.message().contains(NO_TRANSACTIONS) => false,
        stayed => stayed?,
    };
    // The connections are closed in any case, even if the server does not notice.
    for conn in [one, other] {
        drop(conn.close().await);
    }
    Ok(kept)
}

/// Whether both connections stay on their first process of the server. Chance decides which one begins and which one
/// ends first: others on the pooler could move in step with a fixed order.
async fn stay(one: &mut PgConnection, other: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let home = ask(one, BACKEND).await?;
    let others_home = ask(other, BEGIN).await?;
    if others_home == home {
        return Ok(false);
    }
    sqlx::raw_sql(ROLLBACK).execute(&mut *other).await?;
    let mut pair = [(one, home), (other, others_home)];
    // The last bits of a uuid v7 are random.
    let mut chance = uuid::Uuid::now_v7().as_u128();
    let mut toss = || {
        chance >>= 1;
        chance & 1 == 1
    };
    for _ in 0..ROUNDS {
        if toss() {
            pair.reverse();
        }
        for (conn, home) in &mut pair {
            if ask(conn, BEGIN).await? != *home {
                return Ok(false);
            }
        }
        if toss() {
            pair.reverse();
        }
        for (conn, _) in &mut pair {
            sqlx::raw_sql(ROLLBACK).execute(&mut **conn).await?;
        }
    }
    Ok(true)
}

async fn ask(conn: &mut PgConnection, sql: &'static str) -> Result<i32, sqlx::Error> {
    let rows = sqlx::raw_sql(sql).fetch_all(conn).await?;
    rows.last().map_or(Err(sqlx::Error::RowNotFound), |row| row.try_get_unchecked(0))
}
