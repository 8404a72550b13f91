//! PostgreSQL 15 and later.

use sqlx::{Postgres, postgres::PgArguments};

use super::*;
use crate::statements::{DRAW_POSTGRES, LEAVE_POSTGRES, QUEUE_POSTGRES, Waits};

mod listener;
mod sessions;

impl Backend for Postgres {
    const DIALECT: &'static Dialect = &Dialect {
        question_marks: false,
        now: "clock_timestamp()",
        micros: "(extract(epoch FROM clock_timestamp()) * 1000000)::int8",
        later: "clock_timestamp() + @::int8 * interval '1 millisecond'",
        ago: "clock_timestamp() - @::int8 * interval '1 millisecond'",
        left: "extract(epoch FROM @ - clock_timestamp()) * 1000",
        int: "(@)::int8",
        is_in: "= ANY(@::text[])",
        draw: DRAW_POSTGRES,
        queue: QUEUE_POSTGRES,
        leave: LEAVE_POSTGRES,
        purge: "DELETE FROM {lock}resource r USING (SELECT resource FROM {lock}resource u \
            WHERE used_at < {ago:$1} AND NOT EXISTS (SELECT FROM {lock}ticket t WHERE t.resource = u.resource) \
            LIMIT $2 FOR UPDATE SKIP LOCKED) old WHERE r.resource = old.resource",
        begin: "BEGIN",
        waits: Waits::If(
            "SELECT (current_setting('transaction_isolation') IN ('read committed', 'read uncommitted'))::int::int8",
        ),
        migration: include_str!("../../migrations/0001_postgres.sql"),
        // Two at a time would meet in the catalogue.
        migrate_alone: ("BEGIN; SELECT pg_advisory_xact_lock(77316530232);", "COMMIT"),
    };

    type Wake = listener::Listener;

    fn may_name(pool: &sqlx::PgPool) -> bool {
        let address = sqlx::ConnectOptions::to_url_lossy(&*pool.connect_options());
        address.query_pairs().all(|(name, value)| name != "statement-cache-capacity" || value != "0")
    }

    fn may_retry(error: &dyn sqlx::error::DatabaseError) -> bool {
        matches!(&*error.code().unwrap_or_default(), "40001" | "40P01" | "55P03" | "57014")
    }

    fn queue<'c>(
        conn: &'c mut sqlx::PgConnection,
        sql: &'c Statements,
        new: &'c NewTicket,
        named: bool,
    ) -> Answer<'c, i64> {
        Box::pin(async move {
            let values = vec![
                Value::Exact(new.resource.clone()),
                Value::Text(new.ticket.clone()),
                Value::Text(new.client.clone()),
                Value::Text(new.owner.clone()),
                Value::Int(new.lease_ms),
            ];
            let rows = Self::rows(conn, sql.queue.as_str().into(), values, &[Kind::Int], named).await?;
            rows.first().map(|row| row.ints[0]).ok_or(sqlx::Error::RowNotFound)
        })
    }

    draw_returning!();
    statements_of!(Postgres, |done| Ran { rows: done.rows_affected(), last_insert_id: 0 });
}

fn bind<'q>(
    query: sqlx::query::Query<'q, Postgres, PgArguments>,
    value: Value,
) -> sqlx::query::Query<'q, Postgres, PgArguments> {
    match value {
        Value::Int(number) => query.bind(number),
        Value::Text(text) | Value::Exact(text) => query.bind(text),
        Value::List(list) => query.bind(list),
    }
}
