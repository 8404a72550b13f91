//! PostgreSQL.

use keylane::sqlx::{self, AssertSqlSafe, ConnectOptions, PgConnection, Postgres, Row, postgres::PgRow};

use super::{super::processor, Engine, Received, Result, Session, by_sqlx, record_columns};

const FETCH: &str =
    concat!("SELECT ", record_columns!(), " FROM keylane_bench_record WHERE status = 0 ORDER BY id LIMIT $1");
/// `NOT IN` over a subquery is hashed, `<> ALL` of a parameter is searched from its start for every row.
const FETCH_REST: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM keylane_bench_record WHERE status = 0 AND id NOT IN (SELECT unnest($2::int8[])) ORDER BY id LIMIT $1"
);
const CLAIM: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM keylane_bench_record WHERE status = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
);

impl Engine for Postgres {
    const SINGLY: &'static [usize] = &[1, 8];
    const IN_HALF_A_MINUTE: &'static str = "clock_timestamp() + interval '30 s'";
    const BEGIN: &'static str = "BEGIN";
    const BEGIN_SNAPSHOT: &'static str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";
    const DROPS: &'static str = r"
        SELECT format('DROP TABLE IF EXISTS %s CASCADE', oid::regclass) FROM pg_class
        WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname LIKE 'keylane\_bench\_%'
        UNION ALL
        SELECT format('DROP FUNCTION IF EXISTS %s CASCADE', oid::regprocedure) FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'keylane\_bench\_%'";
    const EFFECTS: &'static str = "SELECT COALESCE(sum(applied), 0)::int8 FROM keylane_bench_effect";
    const CLEAR: &'static [&'static str] = &["TRUNCATE keylane_bench_record, keylane_bench_effect"];
    const NOTIFIES: bool = true;
    const DEADLOCKS: Option<&'static str> =
        Some("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
    const LOCK_WAITS: Option<&'static str> = Some(
        "SELECT count(*) FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE datname = current_database() \
         AND NOT granted AND waitstart < clock_timestamp() - interval '100 ms'",
    );
    const REFRESH: &'static [&'static str] =
        &["VACUUM ANALYZE keylane_bench_record", "VACUUM ANALYZE keylane_bench_effect"];
    const RECORD_BYTES: &'static str = "SELECT pg_total_relation_size('keylane_bench_record')";
    const FREEZE_STATISTICS: &'static [&'static str] = &[
        "ALTER TABLE keylane_bench_record SET (autovacuum_enabled = false)",
        "ANALYZE keylane_bench_record",
    ];

    by_sqlx!(PgRow);

    fn session(session: Session) -> &'static str {
        match session {
            Session::Plain => "",
            Session::Relaxed => "SET synchronous_commit = off",
            Session::Pinned => {
                "SET synchronous_commit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; \
                 SET enable_sort = off; SET jit = off; SET plan_cache_mode = force_generic_plan"
            }
        }
    }

    async fn fetch(conn: &mut PgConnection, in_flight: &[i64], limit: i64) -> Result<Vec<PgRow>> {
        Ok(match in_flight {
            [] => sqlx::query(FETCH).bind(limit).fetch_all(conn).await?,
            ids => sqlx::query(FETCH_REST).bind(limit).bind(ids).fetch_all(conn).await?,
        })
    }

    /// Prepared once for this text, because rows of a text query have payloads that would be copied.
    async fn rows(conn: &mut PgConnection, sql: String) -> Result<Vec<PgRow>> {
        Ok(sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(conn).await?)
    }

    async fn claim(conn: &mut PgConnection) -> Result<Option<PgRow>> {
        Ok(sqlx::query(CLAIM).fetch_optional(conn).await?)
    }

    async fn delete(conn: &mut PgConnection, ids: &[i64]) -> Result<()> {
        sqlx::query("DELETE FROM keylane_bench_record WHERE id = ANY($1)").bind(ids).execute(conn).await?;
        Ok(())
    }

    async fn add_effect(conn: &mut PgConnection, key: &str) -> Result<()> {
        const ADD: &str = "UPDATE keylane_bench_effect SET applied = applied + 1 WHERE record_key = $1";
        sqlx::query(ADD).bind(key).execute(conn).await?;
        Ok(())
    }

    /// The postmaster, the parent of every backend.
    async fn server_process(conn: &mut PgConnection) -> Result<Option<u32>> {
        let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(conn).await?;
        Ok(u32::try_from(backend).ok().and_then(|pid| processor::parent(pid, "postgres")))
    }

    async fn log_position(conn: &mut PgConnection) -> Result<Option<i64>> {
        let position = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8";
        Ok(Some(Self::number(conn, position).await?))
    }
}
