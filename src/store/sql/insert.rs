//! Records on their way into one statement.

use sqlx::AssertSqlSafe;

use super::{dialect::Dialect, statements::filled};
use crate::{
    record::{Headers, NewRecord},
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

    /// What follows the values that every record has: the status and the due time, as an expression of a parameter.
    pub(crate) fn due_values(&self, parameter: &str) -> String {
        self.due.map_or_else(String::new, |(due, _)| format!(", 4, {}", due.replace('@', parameter)))
    }
}

/// Headers as stored: JSON text, or null when there are none.
pub(crate) fn headers_text(headers: &Headers) -> Option<String> {
    if headers.is_empty() { None } else { serde_json::to_string(headers).ok() }
}
