//! The producer's side: inserts on the connection of the user.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    call::store_error,
    driver::Driver,
    insert::{Extra, Insert, Producer, key_value},
    statements::safe,
};
use crate::{
    record::{Deadline, Due, NewRecord},
    statement::{Statement, Step},
    store::{ErrorClass, StoreError},
};

/// The most rows per statement. With at most eleven parameters per row, the number stays below the limit of
/// every driver.
const CHUNK: usize = 1000;

/// Inserts records in the order given, in few statements.
pub(crate) async fn insert<D: Driver>(
    conn: &mut D::Connection,
    producer: &Producer,
    records: &[NewRecord],
) -> Result<(), StoreError> {
    let extra = |row: &NewRecord| (row.due, row.deadline);
    let alike = |a: &NewRecord, b: &NewRecord| {
        extra(a) == extra(b) && a.dedup_key == b.dedup_key && a.headers == b.headers
    };
    for group in records.chunk_by(alike) {
        for rows in group.chunks(CHUNK) {
            let insert = Insert { producer, rows, extras: extras::<D>(&group[0])? };
            D::insert_rows(conn, insert).await.map_err(|error| store_error::<D>("insert", error))?;
        }
    }
    Ok(())
}

/// Inserts a dedup key. Returns false if the key exists.
pub(crate) async fn insert_dedup_key<D: Driver>(
    conn: &mut D::Connection,
    producer: &Producer,
    dedup_key: &str,
) -> Result<bool, StoreError> {
    let sql = safe(&producer.sql.insert_dedup_key);
    let inserted = D::execute(conn, sql, vec![dedup_key.into()]).await;
    Ok(inserted.map_err(|error| store_error::<D>("insert dedup key", error))? == 1)
}

/// The statements of one event in their order, for users who run them without sqlx.
pub(crate) fn statements_of<D: Driver>(
    producer: &Producer,
    records: &[NewRecord],
    dedup_key: Option<&str>,
    strict: bool,
) -> Result<Vec<Statement>, StoreError> {
    let mut statements = Vec::with_capacity(records.len() + 2);
    if let Some(dedup_key) = dedup_key {
        let (text, values) = (producer.sql.insert_dedup_key.to_string(), vec![dedup_key.into()]);
        statements.push(Statement { step: Step::InsertDedupKey, text, values });
    }
    let key = records.first().filter(|_| strict).map(|record| &*record.key);
    if let Some((text, values)) = key.and_then(|key| D::lock_key(producer, key)) {
        statements.push(Statement { step: Step::LockKey, text, values });
    }
    for row in records {
        let insert = Insert { producer, rows: std::slice::from_ref(row), extras: extras::<D>(row)? };
        let text = insert.text(&D::DIALECT, 1).to_string();
        let values = insert.values(D::FAMILY, row).collect();
        statements.push(Statement { step: Step::Insert, text, values });
    }
    Ok(statements)
}

/// The columns and values that only some records have.
fn extras<D: Driver>(row: &NewRecord) -> Result<Vec<Extra>, StoreError> {
    let mut extras = Vec::new();
    let (later, at) = (D::DIALECT.later, D::DIALECT.at);
    let due = match row.due {
        Due::Now => None,
        Due::After(delay) => Some((later, delay)),
        Due::At(time) => Some((at, since_1970(time))),
    };
    if let Some((time, value)) = due {
        let (columns, expression) = (", status, next_attempt_at", format!(", 4, {time}"));
        extras.push(Extra { columns, expression, value: micros(value, "due time")?.into() });
    }
    let deadline = row.deadline.map(|deadline| match deadline {
        Deadline::After(left) => (later, left),
        Deadline::At(time) => (at, since_1970(time)),
    });
    if let Some((time, value)) = deadline {
        let (columns, expression) = (", expires_at", format!(", {time}"));
        extras.push(Extra { columns, expression, value: micros(value, "deadline")?.into() });
    }
    if let Some(dedup_key) = &row.dedup_key {
        let value = key_value(D::FAMILY, dedup_key);
        extras.push(Extra { columns: ", dedup_key", expression: ", @".to_owned(), value });
    }
    Ok(extras)
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn micros(time: Duration, what: &str) -> Result<i64, StoreError> {
    let out_of_range =
        |_| StoreError::new("insert", ErrorClass::Record, format!("the {what} is out of range"));
    i64::try_from(time.as_micros()).map_err(out_of_range)
}
