//! Records on their way into one statement.

use sqlx::AssertSqlSafe;

use super::{
    dialect::{Dialect, Family},
    statements::filled,
};
use crate::{
    record::{Headers, NewRecord},
    statement::Value,
    store::Tables,
};

/// Records that share their due time.
pub(crate) struct Insert<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) rows: &'a [NewRecord],
    /// What is written as `next_attempt_at`, `@` for the parameter, and its microseconds.
    pub(crate) due: Option<(&'static str, i64)>,
}

impl Insert<'_> {
    /// The statement of a template, with what is written for records that are due later.
    pub(crate) fn fill(
        &self,
        dialect: &Dialect,
        template: &str,
        values: &[(&str, String)],
    ) -> AssertSqlSafe<String> {
        let due_columns = if self.due.is_some() { ", status, next_attempt_at" } else { "" };
        let sql = dialect.render(template, self.tables).replace("{due_columns}", due_columns);
        AssertSqlSafe(filled(&sql, values))
    }

    /// The parameters of a record, in the order of the columns.
    pub(crate) fn values(&self, family: Family, row: &NewRecord) -> impl Iterator<Item = Value> {
        let event_id = match family {
            Family::Postgres => Value::Uuid(row.event_id),
            Family::MySql | Family::Sqlite => Value::Bytes(row.event_id.as_bytes().to_vec()),
        };
        let partition = match family {
            Family::Postgres => Value::SmallInt(i16::from(row.partition.number())),
            Family::MySql | Family::Sqlite => Value::Int(i64::from(row.partition.number())),
        };
        let due = self.due.map(|(_, micros)| Value::Int(micros));
        let values = [
            event_id,
            partition,
            key_value(family, &row.key),
            row.handler.as_str().into(),
            row.record_type.as_str().into(),
            row.content_type.as_str().into(),
            row.payload.clone().into(),
            headers_text(&row.headers).map_or(Value::Null, Value::Text),
        ];
        values.into_iter().chain(due)
    }

    /// What follows the values that every record has: the status and the due time, as an expression of a parameter.
    pub(crate) fn due_values(&self, parameter: &str) -> String {
        self.due.map_or_else(String::new, |(due, _)| format!(", 4, {}", due.replace('@', parameter)))
    }
}

/// A key as its column takes it: bytes on MySQL, where texts have a collation.
pub(crate) fn key_value(family: Family, key: &str) -> Value {
    match family {
        Family::MySql => key.as_bytes().to_vec().into(),
        Family::Postgres | Family::Sqlite => key.into(),
    }
}

/// Headers as stored: JSON text, or null when there are none.
pub(crate) fn headers_text(headers: &Headers) -> Option<String> {
    if headers.is_empty() { None } else { serde_json::to_string(headers).ok() }
}
