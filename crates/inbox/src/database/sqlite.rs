//! SQLite: one transaction writes at a time.

use sqlx::{Sqlite, sqlite::SqliteArguments};

use super::*;
use crate::statements::{NOTE_FAILURE_UPSERT, TAKE_SQLITE};

impl Backend for Sqlite {
    const DIALECT: &'static Dialect = &Dialect {
        question_marks: false,
        now: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
        later: "CAST(unixepoch('subsec') * 1000000 AS INTEGER) + @ * 1000",
        ago: "CAST(unixepoch('subsec') * 1000000 AS INTEGER) - @ * 1000",
        left: "(@ - CAST(unixepoch('subsec') * 1000000 AS INTEGER)) / 1000",
        int: "CAST(@ AS INTEGER)",
        is_in: "IN (SELECT value FROM json_each(@))",
        // Without a condition, ON would belong to a join.
        each: ("value", "FROM json_each($5) WHERE true"),
        latest: "",
        marked: "",
        // A transaction that reads first could not write once another has.
        begin: "BEGIN IMMEDIATE; SAVEPOINT keylane_inbox",
        set_mark: Some("SAVEPOINT keylane_inbox"),
        take_mark: Some("RELEASE SAVEPOINT keylane_inbox"),
        take: TAKE_SQLITE,
        note_failure: NOTE_FAILURE_UPSERT,
        purge: "DELETE FROM {inbox}message WHERE (consumer_group, event_id) IN (SELECT consumer_group, event_id \
            FROM {inbox}message WHERE status = $1 AND finished_at < {ago:$2} ORDER BY finished_at LIMIT $3)",
        migration: include_str!("../../migrations/0001_sqlite.sql"),
        migrate_alone: ("BEGIN IMMEDIATE;", "COMMIT"),
    };

    fn may_retry(error: &dyn sqlx::error::DatabaseError) -> bool {
        let code: i64 = error.code().and_then(|code| code.parse().ok()).unwrap_or(0);
        matches!(code & 0xff, 5 | 6)
    }

    take_returning!();
    statements_of!(Sqlite, |done| Ran { rows: done.rows_affected(), last_insert_id: 0 });
}

fn bind<'q>(
    query: sqlx::query::Query<'q, Sqlite, SqliteArguments>,
    value: Value,
) -> sqlx::query::Query<'q, Sqlite, SqliteArguments> {
    match value {
        Value::Int(number) => query.bind(number),
        Value::Text(text) | Value::Exact(text) => query.bind(text),
        Value::List(ids) => query.bind(serde_json::Value::from(ids).to_string()),
    }
}
