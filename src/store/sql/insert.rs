//! The producer's side: inserting on the user's own connection.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::{driver::Driver, safe, store_error};
use crate::{
    record::{Due, Headers, NewRecord},
    store::{ErrorClass, StoreError, Tables},
};

/// Rows of one statement at most: eight parameters each stay below every driver's limit.
const CHUNK: usize = 1000;

/// Records that share their due time, on their way into one statement.
pub(crate) struct Insert<'a> {
    pub(crate) rows: &'a [NewRecord],
    /// `INSERT INTO … (columns)`.
    pub(crate) head: String,
    /// What is written as `next_attempt_at`, `@` for the parameter, and its microseconds.
    pub(crate) due: Option<(&'static str, i64)>,
}

/// The columns that every record has, in the order in which drivers bind them.
pub(crate) const COLUMNS: &str =
    "event_id, partition_no, record_key, handler, record_type, content_type, payload, headers";
/// How many those are.
pub(crate) const COLUMN_COUNT: usize = 8;

impl Insert<'_> {
    /// The text with so many groups of values.
    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    pub(crate) fn with_values(&self, rows: usize) -> AssertSqlSafe<String> {
        let row = ["?"; COLUMN_COUNT].join(", ");
        let row = match self.due {
            Some((due, _)) => format!("({row}, 4, {})", due.replace('@', "?")),
            None => format!("({row})"),
        };
        AssertSqlSafe(format!("{} VALUES {}", self.head, vec![row; rows].join(", ")))
    }
}

/// Parts whose sizes are powers of two, the largest first: so few texts that all of them can stay
/// prepared. On MySQL, one that is prepared anew is closed after use, and whatever comes next on the
/// connection waits 40 ms for that packet, which has no answer, to be acknowledged.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn kept_parts<T>(mut all: &[T]) -> impl Iterator<Item = &[T]> {
    const LARGEST: usize = 128;
    std::iter::from_fn(move || {
        let size = 1 << all.len().checked_ilog2()?;
        let (part, rest) = all.split_at(LARGEST.min(size));
        all = rest;
        Some(part)
    })
}

/// Inserts records in the order given, in few statements.
pub(crate) async fn insert<D: Driver>(
    conn: &mut D::Connection,
    tables: &Tables,
    records: &[NewRecord],
) -> Result<(), StoreError> {
    for group in records.chunk_by(|a, b| a.due == b.due) {
        let due = due::<D>(group[0].due)?;
        let columns = if due.is_some() { ", status, next_attempt_at" } else { "" };
        let head = format!("INSERT INTO {}record ({COLUMNS}{columns})", tables.qualifier());
        for rows in group.chunks(CHUNK) {
            let insert = Insert { rows, head: head.clone(), due };
            D::insert_rows(conn, insert).await.map_err(|error| store_error::<D>("insert", error))?;
        }
    }
    Ok(())
}

fn due<D: Driver>(due: Due) -> Result<Option<(&'static str, i64)>, StoreError> {
    let out_of_range = |_| StoreError::new("insert", ErrorClass::Record, "the due time is out of range");
    Ok(match due {
        Due::Now => None,
        Due::After(delay) => {
            Some((D::DIALECT.later, i64::try_from(delay.as_micros()).map_err(out_of_range)?))
        }
        Due::At(time) => {
            let since_1970 = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            Some((D::DIALECT.at, i64::try_from(since_1970.as_micros()).map_err(out_of_range)?))
        }
    })
}

/// Headers as stored: JSON text, or null when there are none.
pub(crate) fn headers_text(headers: &Headers) -> Option<String> {
    if headers.is_empty() { None } else { serde_json::to_string(headers).ok() }
}

/// Notes a dedup key; false if it was there.
pub(crate) async fn note_dedup_key<D: Driver>(
    conn: &mut D::Connection,
    tables: &Tables,
    dedup_key: &str,
) -> Result<bool, StoreError> {
    let sql = D::DIALECT.render(include_str!("statements/note_dedup_key.sql"), tables);
    let noted = D::execute(conn, safe(&Arc::from(sql)), vec![dedup_key.into()]).await;
    Ok(noted.map_err(|error| store_error::<D>("note dedup key", error))? == 1)
}

#[cfg(all(test, any(feature = "mysql", feature = "sqlite")))]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_the_order_and_have_few_sizes() {
        let sizes = |count: usize| -> Vec<usize> {
            let all: Vec<usize> = (0..count).collect();
            assert_eq!(kept_parts(&all).flatten().copied().collect::<Vec<_>>(), all);
            kept_parts(&all).map(<[usize]>::len).collect()
        };
        assert!(sizes(0).is_empty());
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(99), [64, 32, 2, 1]);
        assert_eq!(sizes(300), [128, 128, 32, 8, 4]);
    }
}
