//! PostgreSQL 15 and later.

use sqlx::{Postgres, postgres::PgArguments};

use super::*;
use crate::statements::{NOTE_FAILURE_UPSERT, TAKE_POSTGRES};

impl Backend for Postgres {
    const DIALECT: &'static Dialect = &Dialect {
        question_marks: false,
        now: "clock_timestamp()",
        later: "clock_timestamp() + @::int8 * interval '1 millisecond'",
        ago: "clock_timestamp() - @::int8 * interval '1 millisecond'",
        left: "extract(epoch FROM @ - clock_timestamp()) * 1000",
        int: "(@)::int8",
        is_in: "= ANY(@::text[])",
        each: ("x", "FROM unnest($5::text[]) AS x"),
        latest: "",
        marked: " AND current_setting('keylane.inbox', true) = token",
        begin: "BEGIN",
        set_mark: None,
        take_mark: None,
        take: TAKE_POSTGRES,
        note_failure: NOTE_FAILURE_UPSERT,
        purge: "DELETE FROM {inbox}message m USING (SELECT consumer_group, event_id FROM {inbox}message \
            WHERE status = $1 AND finished_at < {ago:$2} ORDER BY finished_at LIMIT $3 FOR UPDATE SKIP LOCKED) old \
            WHERE m.consumer_group = old.consumer_group AND m.event_id = old.event_id",
        migration: include_str!("../../migrations/0001_postgres.sql"),
        // Two at a time would meet in the catalogue.
        migrate_alone: ("BEGIN; SELECT pg_advisory_xact_lock(77316530231);", "COMMIT"),
    };

    fn may_name(pool: &sqlx::PgPool) -> bool {
        let address = sqlx::ConnectOptions::to_url_lossy(&*pool.connect_options());
        address.query_pairs().all(|(name, value)| name != "statement-cache-capacity" || value != "0")
    }

    fn may_retry(error: &dyn sqlx::error::DatabaseError) -> bool {
        matches!(&*error.code().unwrap_or_default(), "40001" | "40P01" | "55P03" | "57014")
    }

    take_returning!();
    statements_of!(Postgres, |done| Ran { rows: done.rows_affected(), last_insert_id: 0 });
}

fn bind<'q>(
    query: sqlx::query::Query<'q, Postgres, PgArguments>,
    value: Value,
) -> sqlx::query::Query<'q, Postgres, PgArguments> {
    match value {
        Value::Int(number) => query.bind(number),
        Value::Text(text) | Value::Exact(text) => query.bind(text),
        Value::List(ids) => query.bind(ids),
    }
}
