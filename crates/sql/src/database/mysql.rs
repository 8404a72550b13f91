//! MySQL 8 and later, MariaDB 10.6 and later.

use sqlx::{MySql, mysql::MySqlDatabaseError};

use super::*;

impl SqlDatabase for MySql {
    const DIALECT: &'static Dialect = &Dialect {
        family: Family::MySql,
        begin: "START TRANSACTION",
        now: "UTC_TIMESTAMP(6)",
        micros: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
        later: "UTC_TIMESTAMP(6) + INTERVAL (@ * 1000) MICROSECOND",
        ago: "UTC_TIMESTAMP(6) - INTERVAL (@ * 1000) MICROSECOND",
        left: "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), @) / 1000",
        int: "CAST(@ AS SIGNED)",
        is_in: "IN ({list})",
        alone: ("", ""),
    };

    fn is_passing(error: &dyn sqlx::error::DatabaseError) -> bool {
        matches!(number_of(error), 1020 | 1205 | 1213 | 3572)
    }

    fn code_of(error: &dyn sqlx::error::DatabaseError) -> String {
        number_of(error).to_string()
    }

    /// The text has the name at its end, after the value.
    fn constraint_of(error: &dyn sqlx::error::DatabaseError) -> Option<String> {
        let (_, name) = error.message().rsplit_once("for key '")?;
        Some(name.trim_end_matches('\'').to_owned())
    }

    statements_of!(
        |done| Executed { rows: done.rows_affected(), last_insert_id: done.last_insert_id() },
        |query, value| match value {
            Value::Int(number) => query.bind(number),
            Value::Text(text) => query.bind(text),
            Value::Exact(text) => query.bind(text.into_bytes()),
            Value::Bytes(bytes) => query.bind(bytes),
            Value::Texts(list) => list.into_iter().fold(query, sqlx::query::Query::bind),
            Value::Exacts(list) => list.into_iter().fold(query, |query, text| query.bind(text.into_bytes())),
        }
    );
}

fn number_of(error: &dyn sqlx::error::DatabaseError) -> u16 {
    error.try_downcast_ref().map_or(0, MySqlDatabaseError::number)
}
