//! Decodes records. A record is shared from here on, so that nothing copies it on its way to its handler.

use std::{str::from_utf8, sync::Arc, time::Duration};

use uuid::Uuid;

use super::driver::AFTER_RECORD;
use crate::{
    instance::Generation,
    name::Name,
    partition::Partition,
    record::{BoxedError, Delivery, Record},
};

/// A row that can be decoded as a record. NULL is `None`.
pub(super) trait RecordRow {
    /// The bytes of a text, a key, an id of 16 bytes or a payload.
    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, sqlx::Error>;

    /// A number of 64 bits.
    fn int(&self, column: usize) -> Result<Option<i64>, sqlx::Error>;

    /// The microseconds of a difference of two times.
    fn micros(&self, column: usize) -> Result<Option<i64>, sqlx::Error> {
        self.int(column)
    }
}

/// Decodes the rows of a read of due records, and the count of the cluster's changes, which is in the one row
/// that is no record.
pub(super) fn records_and_changes(rows: &[impl RecordRow]) -> Result<(Vec<Arc<Record>>, i64), sqlx::Error> {
    let (mut records, mut changes) = (Vec::with_capacity(rows.len()), 0);
    for row in rows {
        match row.int(AFTER_RECORD)? {
            Some(count) => changes = count,
            None => records.push(record(row, records.last())?),
        }
    }
    Ok((records, changes))
}

/// Decodes a claimed record, whose generation is the token of its claim.
pub(super) fn claimed_record(row: &impl RecordRow) -> Result<Arc<Record>, sqlx::Error> {
    let mut claimed = record(row, None)?;
    Arc::make_mut(&mut claimed).delivery.generation = Generation(row.int(AFTER_RECORD)?.unwrap_or(0));
    Ok(claimed)
}

/// Decodes a record. Most rows repeat the names of the row `before` them.
pub(super) fn record(row: &impl RecordRow, before: Option<&Arc<Record>>) -> Result<Arc<Record>, sqlx::Error> {
    let required = |column| move || sqlx::Error::ColumnNotFound(format!("{column}"));
    let before = before.map(|before| &before.delivery);
    let bytes = |column| row.bytes(column)?.ok_or_else(required(column));
    let int = |column| row.int(column)?.ok_or_else(required(column));
    let name = |column, before: Option<&Name>| {
        let bytes = bytes(column)?;
        match before.filter(|before| before.as_bytes() == bytes) {
            Some(before) => Ok(before.clone()),
            None => from_utf8(bytes).map(Name::from).map_err(unfit(column)),
        }
    };
    let headers = row.bytes(8)?.map(|text| serde_json::from_slice(text).unwrap_or_default());
    let micros = |count| Duration::from_micros(u64::try_from(count).unwrap_or(0));
    Ok(Arc::new(Record {
        delivery: Delivery {
            id: int(0)?,
            event_id: Uuid::from_slice(bytes(1)?).map_err(unfit(1))?,
            partition: Partition::new(int(2)?).ok_or_else(required(2))?,
            // A key that is not UTF-8 was written by hand. It no longer hashes to its partition.
            key: String::from_utf8_lossy(bytes(3)?).as_ref().into(),
            handler: name(4, before.map(|before| &before.handler))?,
            record_type: name(5, before.map(|before| &before.record_type))?,
            content_type: name(6, before.map(|before| &before.content_type))?,
            generation: Generation::default(),
            headers: headers.unwrap_or_default(),
            attempt: u32::try_from(int(9)?).unwrap_or(u32::MAX).saturating_add(1),
            age: micros(row.micros(10)?.unwrap_or(0)),
            // The time since the deadline is negative before the deadline.
            expires_in: row.micros(11)?.map(|since| micros(since.saturating_neg())),
        },
        payload: bytes(7)?.to_vec(),
    }))
}

/// The error about a value that does not fit its column.
pub(super) fn unfit<E: Into<BoxedError>>(column: usize) -> impl Fn(E) -> sqlx::Error {
    move |error| sqlx::Error::ColumnDecode { index: column.to_string(), source: error.into() }
}
