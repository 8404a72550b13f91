//! MySQL 8 and later, MariaDB 10.6 and later.

use sqlx::{
    MySql,
    mysql::{MySqlArguments, MySqlDatabaseError},
};

use super::*;
use crate::{
    core::in_list,
    statements::{NOTE_FAILURE_MYSQL, TAKE_MYSQL},
};

impl Backend for MySql {
    const DIALECT: &'static Dialect = &Dialect {
        question_marks: true,
        now: "UTC_TIMESTAMP(6)",
        later: "UTC_TIMESTAMP(6) + INTERVAL (@ * 1000) MICROSECOND",
        ago: "UTC_TIMESTAMP(6) - INTERVAL (@ * 1000) MICROSECOND",
        left: "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), @) / 1000",
        int: "CAST(@ AS SIGNED)",
        is_in: "IN ({ids})",
        each: ("", ""),
        // A plain read of REPEATABLE READ would not see what was committed meanwhile.
        latest: " FOR UPDATE",
        marked: "",
        begin: "START TRANSACTION; SAVEPOINT keylane_inbox",
        set_mark: Some("SAVEPOINT keylane_inbox"),
        take_mark: Some("RELEASE SAVEPOINT keylane_inbox"),
        take: TAKE_MYSQL,
        note_failure: NOTE_FAILURE_MYSQL,
        purge: "DELETE FROM {inbox}message WHERE status = $1 AND finished_at < {ago:$2} \
            ORDER BY finished_at LIMIT $3",
        migration: include_str!("../../migrations/0001_mysql.sql"),
        migrate_alone: ("", ""),
    };

    fn may_retry(error: &dyn sqlx::error::DatabaseError) -> bool {
        let number = error.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number);
        matches!(number, Some(1020 | 1205 | 1213 | 3572))
    }

    fn take<'c>(
        conn: &'c mut sqlx::MySqlConnection,
        shared: &'c crate::core::Shared,
        values: [Value; 4],
        ids: Vec<String>,
    ) -> Answer<'c, Option<Vec<String>>> {
        Box::pin(async move {
            let [group, token, ..] = values.clone();
            let row = &*shared.sql.take_row;
            let sql = shared.take.replace("{rows}", &vec![row; ids.len()].join(", "));
            let each = |id: &String| values.iter().cloned().chain([Value::Exact(id.clone())]);
            // A text with many rows would fill the server's cache of statements.
            let named = shared.named && ids.len() == 1;
            let ran = Self::run(conn, sql.into(), ids.iter().flat_map(each).collect(), named).await?;
            if ran.last_insert_id == 0 {
                return Ok(None);
            }
            let Value::Text(token) = token else { return Ok(Some(Vec::new())) };
            let sql = in_list(&shared.sql.states, &ids);
            let mut values = vec![group];
            values.extend(ids.into_iter().map(Value::Exact));
            let kinds = &[Kind::Text, Kind::Text, Kind::Text, Kind::Text, Kind::Int];
            let rows = Self::rows(conn, sql, values, kinds, false).await?;
            let ours = rows.into_iter().filter(|row| row.texts[2] == token);
            Ok(Some(ours.map(|mut row| row.texts.swap_remove(0)).collect()))
        })
    }

    statements_of!(MySql, |done| Ran { rows: done.rows_affected(), last_insert_id: done.last_insert_id() });
}

fn bind<'q>(
    query: sqlx::query::Query<'q, MySql, MySqlArguments>,
    value: Value,
) -> sqlx::query::Query<'q, MySql, MySqlArguments> {
    match value {
        Value::Int(number) => query.bind(number),
        Value::Text(text) => query.bind(text),
        Value::Exact(text) => query.bind(text.into_bytes()),
        Value::List(ids) => ids.into_iter().fold(query, |query, id| query.bind(id.into_bytes())),
    }
}
