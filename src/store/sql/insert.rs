//! The producer's side: inserting on the user's own connection.

use std::sync::Arc;

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
