//! MariaDB and MySQL.

use keylane::sqlx::{self, AssertSqlSafe, ConnectOptions, MySql, MySqlConnection, Row, mysql::MySqlRow};

use super::{Engine, Received, Result, Session, by_sqlx, record_columns};

/// The primary key is the table: no other index can be cheaper from the head.
const FETCH: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM keylane_bench_record FORCE INDEX (PRIMARY) WHERE status = 0 ORDER BY id LIMIT ?"
);
const CLAIM: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM keylane_bench_record FORCE INDEX (PRIMARY) WHERE status = 0 ORDER BY id LIMIT 1 \
     FOR UPDATE SKIP LOCKED"
);

impl Engine for MySql {
    const SINGLY: &'static [usize] = &[1, 8];
    const IN_HALF_A_MINUTE: &'static str = "UTC_TIMESTAMP(6) + INTERVAL 30 SECOND";
    const BEGIN: &'static str = "START TRANSACTION";
    const BEGIN_SNAPSHOT: &'static str = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
    const DROPS: &'static str = r"
        SELECT CAST(CONCAT('DROP TABLE IF EXISTS ', table_name) AS CHAR) FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_name LIKE 'keylane\_bench\_%'";
    const EFFECTS: &'static str =
        "SELECT CAST(COALESCE(SUM(applied), 0) AS SIGNED) FROM keylane_bench_effect";
    const CLEAR: &'static [&'static str] =
        &["TRUNCATE TABLE keylane_bench_record", "TRUNCATE TABLE keylane_bench_effect"];
    const REFRESH: &'static [&'static str] = &["ANALYZE TABLE keylane_bench_record, keylane_bench_effect"];
    const RECORD_BYTES: &'static str = "SELECT CAST(data_length + index_length AS SIGNED) \
         FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'keylane_bench_record'";
    const FREEZE_STATISTICS: &'static [&'static str] =
        &["ALTER TABLE keylane_bench_record STATS_AUTO_RECALC = 0", "ANALYZE TABLE keylane_bench_record"];

    by_sqlx!(MySqlRow);

    fn session(_: Session) -> &'static str {
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    }

    async fn fetch(conn: &mut MySqlConnection, in_flight: &[i64], limit: i64) -> Result<Vec<MySqlRow>> {
        if in_flight.is_empty() {
            return Ok(sqlx::query(FETCH).bind(limit).fetch_all(conn).await?);
        }
        let rest = format!("status = 0 AND id NOT IN ({})", list(in_flight));
        let sql = FETCH.replace("status = 0", &rest).replace('?', &limit.to_string());
        Ok(sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await?)
    }

    async fn rows(conn: &mut MySqlConnection, sql: String) -> Result<Vec<MySqlRow>> {
        Ok(sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await?)
    }

    async fn claim(conn: &mut MySqlConnection) -> Result<Option<MySqlRow>> {
        Ok(sqlx::query(CLAIM).fetch_optional(conn).await?)
    }

    async fn delete(conn: &mut MySqlConnection, ids: &[i64]) -> Result<()> {
        Self::execute(conn, format!("DELETE FROM keylane_bench_record WHERE id IN ({})", list(ids))).await
    }

    async fn add_effect(conn: &mut MySqlConnection, key: &str) -> Result<()> {
        const ADD: &str = "UPDATE keylane_bench_effect SET applied = applied + 1 WHERE record_key = ?";
        sqlx::query(ADD).bind(key).execute(conn).await?;
        Ok(())
    }

    async fn server_process(conn: &mut MySqlConnection) -> Result<Option<u32>> {
        let file: Option<String> = sqlx::query_scalar("SELECT @@pid_file").fetch_one(conn).await?;
        let text = file.and_then(|file| std::fs::read_to_string(file).ok());
        Ok(text.and_then(|pid| pid.trim().parse().ok()))
    }
}

fn list(ids: &[i64]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
