//! PostgreSQL 15 and later.

use sqlx::Postgres;

use super::*;

impl SqlDatabase for Postgres {
    const DIALECT: &'static Dialect = &Dialect {
        family: Family::Postgres,
        begin: "BEGIN",
        now: "clock_timestamp()",
        micros: "(extract(epoch FROM clock_timestamp()) * 1000000)::int8",
        later: "clock_timestamp() + @::int8 * interval '1 millisecond'",
        ago: "clock_timestamp() - @::int8 * interval '1 millisecond'",
        left: "extract(epoch FROM @ - clock_timestamp()) * 1000",
        int: "(@)::int8",
        is_in: "= ANY(@::text[])",
        // Two at a time would conflict in the catalogue.
        alone: ("BEGIN; SELECT pg_advisory_xact_lock(@);", "COMMIT"),
    };

    fn may_name(pool: &sqlx::PgPool) -> bool {
        let address = sqlx::ConnectOptions::to_url_lossy(&*pool.connect_options());
        address.query_pairs().all(|(name, value)| name != "statement-cache-capacity" || value != "0")
    }

    fn is_passing(error: &dyn sqlx::error::DatabaseError) -> bool {
        matches!(&*error.code().unwrap_or_default(), "40001" | "40P01" | "55P03" | "57014")
    }

    statements_of!(|done| Executed { rows: done.rows_affected(), last_insert_id: 0 }, |query, value| {
        match value {
            Value::Int(number) => query.bind(number),
            Value::Text(text) | Value::Exact(text) => query.bind(text),
            Value::Bytes(bytes) => query.bind(bytes),
            Value::Texts(list) | Value::Exacts(list) => query.bind(list),
        }
    });
}
