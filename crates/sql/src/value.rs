//! The values of statements and of their results. None of the types can be printed, because the values are the
//! user's.

use std::{sync::Arc, time::Duration};

/// A parameter of a statement.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A 64-bit integer.
    Int(i64),
    /// A text.
    Text(String),
    /// A text that MySQL keeps as bytes (`VARBINARY`), because its collations take `a`, `A` and `a ` for the same
    /// text.
    Exact(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// The texts of `{in:$1}`.
    Texts(Vec<String>),
    /// The exact texts of `{in:$1}`.
    Exacts(Vec<String>),
}

/// The type as which a column of a result is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A 64-bit integer: write `{int:…}` around what is not one.
    Int,
    /// A text; MySQL may keep it as bytes.
    Text,
    /// Bytes.
    Bytes,
}

/// A row of a result, column by column.
#[derive(Clone, PartialEq)]
pub struct Row(pub(crate) Vec<Cell>);

#[derive(Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The effect of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Executed {
    /// The rows that it has changed.
    pub rows: u64,
    /// The value of `LAST_INSERT_ID` on MySQL; 0 on other databases.
    pub last_insert_id: u64,
}

impl Value {
    /// A duration in milliseconds, cut to 500 years: every database can add that to a time of today, and take it away.
    pub fn millis(duration: Duration) -> Self {
        const LONGEST: i64 = 500 * 365 * 86_400_000;
        Self::Int(i64::try_from(duration.as_millis()).map_or(LONGEST, |millis| millis.min(LONGEST)))
    }

    fn list(&self) -> Option<&[String]> {
        match self {
            Self::Texts(list) | Self::Exacts(list) => Some(list),
            _ => None,
        }
    }
}

impl Row {
    /// The number in a column, counted from 0; `None` for a null.
    pub fn int(&self, column: usize) -> Option<i64> {
        match self.0.get(column) {
            Some(Cell::Int(number)) => Some(*number),
            _ => None,
        }
    }

    /// The count in a column; 0 for a null.
    pub fn count(&self, column: usize) -> u64 {
        self.int(column).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
    }

    /// The milliseconds in a column; zero for a null and for a negative number.
    pub fn millis(&self, column: usize) -> Duration {
        Duration::from_millis(self.count(column))
    }

    /// The text in a column; empty for a null.
    pub fn text(&self, column: usize) -> &str {
        match self.0.get(column) {
            Some(Cell::Text(text)) => text,
            _ => "",
        }
    }

    /// Takes the text out of a column.
    pub fn take_text(&mut self, column: usize) -> String {
        match self.take(column) {
            Cell::Text(text) => text,
            _ => String::new(),
        }
    }

    /// Takes the bytes out of a column; `None` for a null.
    pub fn take_bytes(&mut self, column: usize) -> Option<Vec<u8>> {
        match self.take(column) {
            Cell::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn take(&mut self, column: usize) -> Cell {
        self.0.get_mut(column).map_or(Cell::Null, |cell| std::mem::replace(cell, Cell::Null))
    }
}

/// The text with a place for each element of its list, and whether the server may keep it: a text for each length of a
/// list would fill its cache of statements.
pub(crate) fn fill(sql: &str, values: &[Value], named: bool) -> (Arc<str>, bool) {
    match values.iter().find_map(Value::list) {
        Some(list) => {
            let places = vec!["?"; list.len()].join(", ");
            (sql.replace("{list}", &places).into(), named && list.len() == 1)
        }
        None => (sql.into(), named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_place_for_each_and_a_long_one_no_name() {
        let list = |length| [Value::Int(1), Value::Texts(vec![String::new(); length])];
        let filled = |values: &[Value], named| {
            let (sql, named) = fill("a = ? AND b IN ({list})", values, named);
            (sql.to_string(), named)
        };
        assert_eq!(filled(&list(1), true), ("a = ? AND b IN (?)".to_owned(), true));
        assert_eq!(filled(&list(3), true), ("a = ? AND b IN (?, ?, ?)".to_owned(), false));
        assert_eq!(filled(&list(1), false), ("a = ? AND b IN (?)".to_owned(), false));
        assert_eq!(filled(&[Value::Int(1)], true), ("a = ? AND b IN ({list})".to_owned(), true));
    }
}
