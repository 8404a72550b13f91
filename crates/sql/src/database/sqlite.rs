//! SQLite: one transaction writes at a time.

use sqlx::Sqlite;

use super::*;

impl SqlDatabase for Sqlite {
    const DIALECT: &'static Dialect = &Dialect {
        family: Family::Sqlite,
        // A transaction that reads first could not write once another has.
        begin: "BEGIN IMMEDIATE",
        now: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
        micros: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
        later: "CAST(unixepoch('subsec') * 1000000 AS INTEGER) + @ * 1000",
        ago: "CAST(unixepoch('subsec') * 1000000 AS INTEGER) - @ * 1000",
        left: "(@ - CAST(unixepoch('subsec') * 1000000 AS INTEGER)) / 1000",
        int: "CAST(@ AS INTEGER)",
        is_in: "IN (SELECT value FROM json_each(@))",
        alone: ("BEGIN IMMEDIATE;", "COMMIT"),
    };

    fn is_passing(error: &dyn sqlx::error::DatabaseError) -> bool {
        let code: i64 = error.code().and_then(|code| code.parse().ok()).unwrap_or(0);
        // SQLITE_BUSY and SQLITE_LOCKED, with all their extended codes.
        matches!(code & 0xff, 5 | 6)
    }

    statements_of!(|done| Executed { rows: done.rows_affected(), last_insert_id: 0 }, |query, value| {
        match value {
            Value::Int(number) => query.bind(number),
            Value::Text(text) | Value::Exact(text) => query.bind(text),
            Value::Bytes(bytes) => query.bind(bytes),
            Value::Texts(list) | Value::Exacts(list) => query.bind(serde_json::Value::from(list).to_string()),
        }
    });
}
