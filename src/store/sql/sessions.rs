//! Sessions on PostgreSQL: the settings of the workers, and the proof that an address keeps a session.
//!
//! A pooler on the way may lend a connection of the server for one transaction or one statement only. A
//! setting that one client makes on such a connection then holds for other clients, and not for the client
//! that made it. No statement tells whether there is such a pooler, so it is found by its behaviour.

use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, PgPool, Row, postgres::PgConnectOptions};
use uuid::Uuid;

use super::{
    driver::{Role, Session},
    files::blame,
};
use crate::store::SchemaError;

/// How often two connections trade places. On a quiet pooler the first round shows it; on a busy pooler each
/// round shows it with a probability of at least a half.
const ROUNDS: usize = 16;
/// The capacity of the statement cache: more than any connection of the workers prepares.
const STATEMENTS: usize = 100;
const BACKEND: &str = "SELECT pg_backend_pid()";
const BEGIN: &str = "BEGIN; SELECT pg_backend_pid()";
const ROLLBACK: &str = "ROLLBACK";
const STANDBY: &str = "the server is a standby: connect to the primary";
/// The error text of a pooler in statement mode about `BEGIN`. The pooler then closes the connection.
const NO_TRANSACTIONS: &str = "statement pooling mode";

/// The options of the pool for a connection of the workers. A pooler refuses unknown parameters in the
/// start-up packet, so none is added; the precision of floats, which sqlx asks for, is removed because it is
/// not needed. The workers have few statements, which are prepared once where sessions are kept, whatever the
/// pool does.
pub(super) fn options(pool: &PgPool) -> PgConnectOptions {
    let options = (*pool.connect_options()).clone().application_name("keylane").extra_float_digits(None);
    options.statement_cache_capacity(STATEMENTS)
}

pub(super) async fn open(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let opened = options.connect().await;
    opened.map_err(|error| blame(error, options, &["sslrootcert", "sslcert", "sslkey"]))
}

/// Whether connections of the pool keep prepared statements, which is not so behind a pooler that loses
/// them. The options show this setting only in their address.
pub(super) fn caches_statements(pool: &PgPool) -> bool {
    let address = pool.connect_options().to_url_lossy();
    address.query_pairs().all(|(name, value)| name != "statement-cache-capacity" || value != "0")
}

/// Sets up a connection for its role, in one round trip.
pub(super) async fn set_up(conn: &mut PgConnection, session: Session) -> Result<(), sqlx::Error> {
    if session.role == Role::Plain {
        return Ok(());
    }
    let rows = sqlx::raw_sql(AssertSqlSafe(settings(session))).fetch_all(conn).await?;
    // Writes on a standby fail by themselves, but reads on a standby would show the past.
    let standby = session.role == Role::Poll
        && rows.last().is_some_and(|row| row.try_get_unchecked(0).unwrap_or(false));
    match standby {
        true => Err(sqlx::Error::Io(std::io::Error::other(STANDBY))),
        false => Ok(()),
    }
}

fn settings(session: Session) -> String {
    let timeout = session.timeout.as_millis();
    let mut sql = format!(
        "SET statement_timeout = {timeout}; SET idle_in_transaction_session_timeout = {timeout}; \
         SET default_transaction_isolation = 'read committed'; "
    );
    if session.role != Role::Control {
        // The statistics of a queue table are always wrong: read the index in order in spite of them, plan
        // once, and never compile.
        sql.push_str(
            "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
             SET enable_bitmapscan = off; SET enable_sort = off; SET jit = off; ",
        );
    }
    sql.push_str(match session.role {
        Role::Poll => "SELECT pg_is_in_recovery()",
        Role::Settle | Role::Claim if session.async_commit => "SET synchronous_commit = off",
        // Claims and evictions must not be lost, so this does not depend on the server's default.
        _ => {
            "SELECT set_config('synchronous_commit', 'on', false) \
              WHERE current_setting('synchronous_commit') = 'off'"
        }
    });
    sql
}

/// Finds a pooler that does not keep sessions. Two connections begin and end transactions by turns. If
/// sessions are kept, each connection stays on the same process of the server. The test makes no setting that
/// other clients could find.
pub(super) async fn find_pooler(pool: &PgPool) -> Result<Option<SchemaError>, sqlx::Error> {
    let options = options(pool);
    let (mut one, mut other) = (open(&options).await?, open(&options).await?);
    let mode = match stay(&mut one, &mut other).await {
        Ok(stayed) => (!stayed).then_some("transaction"),
        Err(sqlx::Error::Database(refusal)) if refusal.message().contains(NO_TRANSACTIONS) => {
            Some("statement")
        }
        Err(error) => return Err(error),
    };
    // The connections are dropped either way, so an error of closing does not matter.
    for conn in [one, other] {
        drop(sqlx::Connection::close(conn).await);
    }
    Ok(mode.map(|mode| SchemaError::Pooler { mode }))
}

/// Whether both connections stay on the processes of the server that they had first. The order of begins and
/// ends is random, because other clients of the pooler could move in step with a fixed order.
async fn stay(one: &mut PgConnection, other: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let home = ask(one, BACKEND).await?;
    let others_home = ask(other, BEGIN).await?;
    if others_home == home {
        return Ok(false);
    }
    sqlx::raw_sql(ROLLBACK).execute(&mut *other).await?;
    let mut pair = [(one, home), (other, others_home)];
    // The last bits of a uuid v7 are random.
    let mut chance = Uuid::now_v7().as_u128();
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
