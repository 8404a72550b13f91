//! SQLite in WAL mode, several processes on one file.

use std::{sync::Arc, time::Duration};

use sqlx::{
    ConnectOptions, Sqlite, SqliteConnection,
    sqlite::{SqliteArguments, SqliteJournalMode, SqliteRow, SqliteSynchronous},
};

use super::{
    cancel,
    decode::records_and_changes,
    dialect::{Dialect, Family, Mark},
    driver::{Driver, DriverResult, Kind, Role, Session},
    fetches::{records, sqlx_cells, sqlx_fetches},
    glue::{sqlx_codec, sqlx_database, sqlx_driver},
    insert::Producer,
    rows::sqlx_insert,
    statements::{Statements, fill},
};
use crate::{
    record::Cancel,
    rules::horizon::Horizon,
    store::{ErrorClass, OpenError},
};

sqlx_codec!(Sqlite, SqliteArguments);
sqlx_cells!(SqliteRow);
sqlx_database!(Sqlite, SqliteConnection, "SQLite", check_pool);

fn check_pool(pool: &sqlx::SqlitePool) -> Result<(), OpenError> {
    let options = pool.connect_options();
    let file = options.get_filename().to_string_lossy().into_owned();
    let in_memory = file.is_empty() || file.contains(":memory:") || file.contains("sqlx-in-memory");
    if in_memory { Err(OpenError::InMemory) } else { Ok(()) }
}

/// The most rows that the thread of a connection reads ahead of its task. With the driver's 50, the two wait for each
/// other during a batch.
const ROWS_AHEAD: usize = 1_000;

impl Driver for Sqlite {
    const FAMILY: Family = Family::Sqlite;
    const VERSION: Option<&'static str> = Some("PRAGMA data_version");
    const DIALECT: Dialect = Dialect {
        question_marks: true,
        now: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
        age: "(CAST(unixepoch('subsec') * 1000000 AS INTEGER) - @)",
        ago: "CAST(unixepoch('subsec') * 1000000 AS INTEGER) - @",
        later: "CAST(unixepoch('subsec') * 1000000 AS INTEGER) + @",
        at: "@",
        unlocked: "",
        or_of_ranges: true,
        int: "@",
        insert_new: ("INSERT INTO", "ON CONFLICT DO NOTHING"),
        lock: "",
        by: "",
        delete: "DELETE FROM {outbox}@1",
        identity: "'made at ' || created_at",
        server: "0",
        begin: "BEGIN IMMEDIATE",
        mark: Mark {
            set: "SAVEPOINT keylane_work",
            take: Some("RELEASE SAVEPOINT keylane_work"),
            counts: true,
            condition: "",
            read: "",
        },
    };

    fn open_session(pool: &sqlx::SqlitePool, session: Session) -> DriverResult<'static, SqliteConnection> {
        // A writer waits for other writers for less time than its caller waits for it.
        let busy = session.timeout.mul_f64(0.8).max(Duration::from_millis(50));
        let options = (*pool.connect_options()).clone();
        let lazy = matches!(session.role, Role::Settle | Role::Claim) && session.async_commit;
        let options = options
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(busy)
            .foreign_keys(true)
            .row_buffer_size(ROWS_AHEAD)
            // Claims and evictions must not be lost, so this does not depend on the pool's setting.
            .synchronous(if lazy { SqliteSynchronous::Normal } else { SqliteSynchronous::Full });
        Box::pin(async move { options.connect().await })
    }

    fn class_of(error: &dyn sqlx::error::DatabaseError) -> ErrorClass {
        let code = error.code().and_then(|code| code.parse().ok()).unwrap_or(0);
        match class_of_code(code) {
            // SQLite has one code for all mistakes in a statement.
            _ if code == 1 && error.message().starts_with("no such") => ErrorClass::Setup,
            class => class,
        }
    }

    sqlx_insert!(SqliteConnection);
    sqlx_driver!(Sqlite, SqliteConnection);
    sqlx_fetches!(SqliteConnection);
}

/// Reads records by a statement with lists.
async fn read(
    conn: &mut SqliteConnection,
    sql: &str,
    lists: &[(&'static str, String)],
) -> Result<Vec<Arc<crate::record::Record>>, sqlx::Error> {
    records(&sqlx::raw_sql(fill(sql, lists)).fetch_all(conn).await?)
}

/// Whether a transaction is open that was begun by a statement: then a second one cannot begin.
async fn finds_transaction(conn: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    match sqlx::raw_sql("BEGIN").execute(&mut *conn).await {
        Ok(_) => sqlx::raw_sql("ROLLBACK").execute(conn).await.map(|_| false),
        Err(sqlx::Error::Database(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Locks nothing: SQLite has one writer at a time, so ids follow commits.
async fn lock_keys(_: &mut SqliteConnection, _: &Producer, _: &[&str]) -> Result<(), sqlx::Error> {
    Ok(())
}

/// Cancels records, then frees their dedup keys.
async fn cancel_records(
    conn: &mut SqliteConnection,
    sql: &Statements,
    what: &Cancel,
) -> Result<u64, sqlx::Error> {
    let (delete, values) = cancel::naming::<Sqlite>(&sql.cancel, what);
    let cancelled = Sqlite::query(conn, delete, values, &[Kind::Text, Kind::Text]).await?;
    cancel::free_dedup_keys::<Sqlite>(conn, sql, &cancelled, 0).await?;
    Ok(cancelled.len() as u64)
}

/// What to do about a result code, extended or not. The function is total: an unknown code breaks the
/// connection, which is always safe.
pub fn class_of_code(code: i64) -> ErrorClass {
    match (code, code & 0xff) {
        (2067 | 1555 | 2579, _) => ErrorClass::Duplicate,
        (_, 5 | 6 | 9) => ErrorClass::Retry,
        (_, 8) => ErrorClass::WrongNode,
        (_, 7 | 13) => ErrorClass::Resource,
        (_, 18..=20) => ErrorClass::Record,
        (_, 1 | 3 | 11 | 26) => ErrorClass::Setup,
        _ => ErrorClass::Reconnect,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_class() {
        use ErrorClass::{Duplicate, Reconnect, Record, Resource, Retry, Setup, WrongNode};
        let table: [(ErrorClass, &[i64]); 7] = [
            (Retry, &[5, 6, 261, 262, 517]),
            (Reconnect, &[10, 14, 266, 778]),
            (WrongNode, &[8, 776]),
            (Resource, &[7, 13]),
            (Record, &[18, 19, 20, 275, 1299]),
            (Duplicate, &[1555, 2067]),
            (Setup, &[1, 3, 11, 26]),
        ];
        for (class, codes) in table {
            for code in codes {
                assert_eq!(class_of_code(*code), class, "{code}");
            }
        }
        assert_eq!(class_of_code(i64::MAX & !0xff), Reconnect);
    }
}
