//! SQLite.

use keylane::sqlx::{self, AssertSqlSafe, ConnectOptions, Row, Sqlite, SqliteConnection, sqlite::SqliteRow};

use super::{Engine, Received, Result, Session, by_sqlx, record_columns};

/// The rowid is the id: no index can be cheaper from the head.
const FETCH: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM keylane_bench_record NOT INDEXED WHERE status = 0 ORDER BY id LIMIT $1"
);
const FETCH_REST: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM keylane_bench_record NOT INDEXED WHERE status = 0 AND id NOT IN (SELECT value FROM json_each($2)) \
     ORDER BY id LIMIT $1"
);

impl Engine for Sqlite {
    const SINGLY: &'static [usize] = &[1];
    const SKIP_LOCKED: &'static str = "";
    const IN_HALF_A_MINUTE: &'static str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 30000000";
    const ONE_WRITER: bool = true;
    const WAIT_FOR_WRITERS: &'static str = "PRAGMA busy_timeout = 300000";
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    const BEGIN_SNAPSHOT: &'static str = "BEGIN; SELECT MAX(id) FROM keylane_bench_record";
    const DROPS: &'static str = r"
        SELECT 'DROP TABLE IF EXISTS ' || name FROM sqlite_schema
        WHERE type = 'table' AND name LIKE 'keylane\_bench\_%' ESCAPE '\'";
    const EFFECTS: &'static str = "SELECT COALESCE(SUM(applied), 0) FROM keylane_bench_effect";
    const CLEAR: &'static [&'static str] =
        &["DELETE FROM keylane_bench_record", "DELETE FROM keylane_bench_effect"];
    const REFRESH: &'static [&'static str] = &["ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"];
    const RECORD_BYTES: &'static str =
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
    const FREEZE_STATISTICS: &'static [&'static str] = &["ANALYZE"];

    by_sqlx!(SqliteRow);

    fn session(session: Session) -> &'static str {
        match session {
            Session::Plain => "",
            Session::Relaxed | Session::Pinned => "PRAGMA synchronous = NORMAL",
        }
    }

    async fn fetch(conn: &mut SqliteConnection, in_flight: &[i64], limit: i64) -> Result<Vec<SqliteRow>> {
        Ok(match in_flight {
            [] => sqlx::query(FETCH).bind(limit).fetch_all(conn).await?,
            ids => {
                sqlx::query(FETCH_REST).bind(limit).bind(serde_json::to_string(ids)?).fetch_all(conn).await?
            }
        })
    }

    async fn rows(conn: &mut SqliteConnection, sql: String) -> Result<Vec<SqliteRow>> {
        Ok(sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await?)
    }

    async fn claim(conn: &mut SqliteConnection) -> Result<Option<SqliteRow>> {
        Ok(sqlx::query(FETCH).bind(1).fetch_optional(conn).await?)
    }

    async fn delete(conn: &mut SqliteConnection, ids: &[i64]) -> Result<()> {
        const DELETE: &str = "DELETE FROM keylane_bench_record WHERE id IN (SELECT value FROM json_each($1))";
        sqlx::query(DELETE).bind(serde_json::to_string(ids)?).execute(conn).await?;
        Ok(())
    }

    async fn add_effect(conn: &mut SqliteConnection, key: &str) -> Result<()> {
        const ADD: &str = "UPDATE keylane_bench_effect SET applied = applied + 1 WHERE record_key = $1";
        sqlx::query(ADD).bind(key).execute(conn).await?;
        Ok(())
    }

    /// SQLite runs in this process.
    async fn server_process(_: &mut SqliteConnection) -> Result<Option<u32>> {
        Ok(None)
    }
}
