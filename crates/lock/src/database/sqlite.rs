//! SQLite: one transaction writes at a time.

use sqlx::{Sqlite, SqlitePool, sqlite::SqliteArguments};

use super::*;
use crate::{
    rules::SQLITE_POLL_INTERVAL,
    statements::{DRAW_SQLITE, LEAVE, QUEUE, Waits},
};

impl Backend for Sqlite {
    const DIALECT: &'static Dialect = &Dialect {
        question_marks: false,
        now: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
        micros: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
        later: "CAST(unixepoch('subsec') * 1000000 AS INTEGER) + @ * 1000",
        ago: "CAST(unixepoch('subsec') * 1000000 AS INTEGER) - @ * 1000",
        left: "(@ - CAST(unixepoch('subsec') * 1000000 AS INTEGER)) / 1000",
        int: "CAST(@ AS INTEGER)",
        is_in: "IN (SELECT value FROM json_each(@))",
        draw: DRAW_SQLITE,
        queue: QUEUE,
        leave: LEAVE,
        purge: "DELETE FROM {lock}resource WHERE resource IN (SELECT resource FROM {lock}resource u \
            WHERE used_at < {ago:$1} AND NOT EXISTS (SELECT 1 FROM {lock}ticket t WHERE t.resource = u.resource) \
            LIMIT $2)",
        // A transaction that reads first could not write once another has.
        begin: "BEGIN IMMEDIATE",
        waits: Waits::Never,
        migration: include_str!("../../migrations/0001_sqlite.sql"),
        migrate_alone: ("BEGIN IMMEDIATE;", "COMMIT"),
    };

    type Wake = Polled;

    fn may_retry(error: &dyn sqlx::error::DatabaseError) -> bool {
        let code: i64 = error.code().and_then(|code| code.parse().ok()).unwrap_or(0);
        matches!(code & 0xff, 5 | 6)
    }

    draw_returning!();
    statements_of!(Sqlite, |done| Ran { rows: done.rows_affected(), last_insert_id: 0 });
}

/// Nothing tells another process of a commit.
#[derive(Debug)]
pub struct Polled;

impl Wake<Sqlite> for Polled {
    fn new(_: &SqlitePool, _: &SqlitePool, _: Arc<Ears>) -> Self {
        Self
    }

    async fn wait(&self, ear: &Ear, _: &str, longest: Duration) {
        ear.rung(longest.min(SQLITE_POLL_INTERVAL)).await;
    }
}

fn bind<'q>(
    query: sqlx::query::Query<'q, Sqlite, SqliteArguments>,
    value: Value,
) -> sqlx::query::Query<'q, Sqlite, SqliteArguments> {
    match value {
        Value::Int(number) => query.bind(number),
        Value::Text(text) | Value::Exact(text) => query.bind(text),
        Value::List(list) => query.bind(serde_json::Value::from(list).to_string()),
    }
}
