//! Errors of sqlx, which can be printed without values of a user.

use std::fmt;

use sqlx::error::DatabaseError;

use crate::database::SqlDatabase;

/// An error of sqlx. Neither `Display` nor `Debug` shows a text of the server, because it may quote a value of a
/// statement or of a row: they show the code and the constraint. [`full`](Self::full) has the text.
pub struct SqlError {
    full: sqlx::Error,
    line: String,
}

impl SqlError {
    /// An error of this database.
    pub fn of<DB: SqlDatabase>(full: sqlx::Error) -> Self {
        let line = match &full {
            sqlx::Error::Database(answer) => refusal::<DB>(&**answer),
            // The text may quote the value that could not be decoded.
            sqlx::Error::ColumnDecode { index, .. } => format!("column {index} could not be decoded"),
            sqlx::Error::Decode(_) => "a value could not be decoded".to_owned(),
            other => other.to_string(),
        };
        Self { full, line }
    }

    /// The error of sqlx. Its text may quote values, so it does not belong in a log.
    pub fn full(&self) -> &sqlx::Error {
        &self.full
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl fmt::Debug for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlError").field(&self.line).finish()
    }
}

/// The error of sqlx is not its source, because a report that prints sources would print it.
impl std::error::Error for SqlError {}

fn refusal<DB: SqlDatabase>(answer: &dyn DatabaseError) -> String {
    let code = DB::code_of(answer);
    match DB::constraint_of(answer) {
        Some(constraint) => format!("the server refused it: code {code}, constraint {constraint}"),
        None => format!("the server refused it: code {code}"),
    }
}
