//! Cancelling: deletes records that are not due yet, on the connection of the user.
//!
//! A cancel locks the records first and then reads the clock. A fetch reads the clock first and then leaves
//! out locked records ([`still_due`]). If the time of a record comes meanwhile, either the cancel finds the
//! record due, or the fetch finds it locked until the end of the cancelling transaction.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use sqlx::AssertSqlSafe;

use super::{
    call::{begin, commit, query},
    driver::{Driver, Kind, Row, Value},
    insert::{key_value, partition_value, uuid_value},
    statements::{Statements, fill, list, safe},
};
use crate::record::{Cancel, Named, Record, RecordId};

/// A statement that finds the records to cancel, with its parameters.
pub(super) fn naming<D: Driver>(sql: &str, cancel: &Cancel) -> (AssertSqlSafe<Arc<str>>, Vec<Value>) {
    let (column, name) = match &cancel.named {
        Named::Event(event_id) => ("event_id", uuid_value(D::FAMILY, *event_id)),
        Named::DedupKey(dedup_key) => ("dedup_key", key_value(D::FAMILY, dedup_key)),
    };
    let sql = fill(sql, &[("{named}", column.to_owned())]);
    let partition = partition_value(D::FAMILY, cancel.partition);
    (sql, vec![partition, key_value(D::FAMILY, &cancel.key), name])
}

/// Frees the dedup keys of cancelled records. The keys are in this column of `rows`, the times of the records in the
/// next one, as text.
#[cfg_attr(
    not(any(feature = "mysql", feature = "sqlite")),
    expect(dead_code, reason = "PostgreSQL does it in the same statement")
)]
pub(super) async fn free_dedup_keys<D: Driver>(
    conn: &mut D::Connection,
    sql: &Statements,
    rows: &[Row],
    column: usize,
) -> Result<(), sqlx::Error> {
    let mut keys: BTreeMap<String, String> = BTreeMap::new();
    for row in rows {
        if let Some(dedup_key) = row.optional_text(column) {
            let latest = keys.entry(dedup_key).or_default();
            // The texts of times have one width.
            *latest = std::mem::take(latest).max(row.text(column + 1));
        }
    }
    for (dedup_key, created) in keys {
        D::execute(conn, safe(&sql.free_dedup_key), vec![dedup_key.into(), created.into()]).await?;
    }
    Ok(())
}

/// Leaves out those due records that were never tried and that another transaction has cancelled or is about
/// to. Returns the remaining records, and the ids of the others.
pub(super) async fn still_due<D: Driver>(
    conn: &mut D::Connection,
    sql: &Statements,
    records: Vec<Arc<Record>>,
) -> Result<(Vec<Arc<Record>>, Vec<RecordId>), sqlx::Error> {
    let untried = records.iter().filter(|record| record.failures() == 0);
    let mut gone: HashSet<RecordId> = untried.map(|record| record.delivery.id).collect();
    if gone.is_empty() {
        return Ok((records, Vec::new()));
    }
    let sql = fill(&sql.still_due, &[("{ids}", list(gone.iter().copied()))]);
    // A database without row locks has one writer: beginning to write waits for the cancel.
    let one_writer = D::DIALECT.has_one_writer();
    if one_writer {
        begin::<D>(conn).await?;
    }
    let found = query::<D>(conn, sql, Vec::new(), &[Kind::Int]).await?;
    if one_writer {
        commit::<D>(conn).await?;
    }
    for row in &found {
        gone.remove(&row.int(0));
    }
    let left = records.into_iter().filter(|record| !gone.contains(&record.delivery.id)).collect();
    Ok((left, gone.into_iter().collect()))
}
