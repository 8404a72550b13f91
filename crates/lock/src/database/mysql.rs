//! MySQL 8 and later, MariaDB 10.6 and later.

use sqlx::{
    MySql,
    mysql::{MySqlArguments, MySqlDatabaseError},
};

use super::*;
use crate::statements::{DRAW_MYSQL, LEAVE, QUEUE, Waits};

mod names;

impl Backend for MySql {
    const DIALECT: &'static Dialect = &Dialect {
        question_marks: true,
        now: "UTC_TIMESTAMP(6)",
        micros: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
        later: "UTC_TIMESTAMP(6) + INTERVAL (@ * 1000) MICROSECOND",
        ago: "UTC_TIMESTAMP(6) - INTERVAL (@ * 1000) MICROSECOND",
        left: "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), @) / 1000",
        int: "CAST(@ AS SIGNED)",
        is_in: "IN ({list})",
        draw: DRAW_MYSQL,
        queue: QUEUE,
        leave: LEAVE,
        purge: "DELETE FROM {lock}resource WHERE used_at < {ago:$1} \
            AND NOT EXISTS (SELECT 1 FROM {lock}ticket t WHERE t.resource = {lock}resource.resource) LIMIT $2",
        begin: "START TRANSACTION",
        waits: Waits::Always,
        migration: include_str!("../../migrations/0001_mysql.sql"),
        migrate_alone: ("", ""),
    };

    type Wake = names::Names;

    fn may_retry(error: &dyn sqlx::error::DatabaseError) -> bool {
        let number = error.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number);
        matches!(number, Some(1020 | 1205 | 1213 | 3572))
    }

    fn draw<'c>(
        conn: &'c mut sqlx::MySqlConnection,
        sql: &'c Statements,
        resource: &'c str,
        named: bool,
    ) -> Answer<'c, i64> {
        Box::pin(async move {
            let values = vec![Value::Exact(resource.to_owned())];
            let ran = Self::run(conn, sql.draw.as_str().into(), values, named).await?;
            i64::try_from(ran.last_insert_id).map_err(|_| sqlx::Error::RowNotFound)
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
        Value::List(list) => list.into_iter().fold(query, sqlx::query::Query::bind),
    }
}
