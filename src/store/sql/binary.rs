//! Cells of PostgreSQL in binary form.

use sqlx::{
    Row, ValueRef,
    postgres::{PgRow, PgValueFormat},
};

use super::decode::{RecordRow, unfit};

const MICROS_PER_DAY: i64 = 86_400_000_000;

impl RecordRow for PgRow {
    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, sqlx::Error> {
        binary(self, column).map_or_else(|| self.try_get_unchecked(column), Ok)
    }

    fn int(&self, column: usize) -> Result<Option<i64>, sqlx::Error> {
        match binary(self, column).map(|cell| cell.map(<[u8; 8]>::try_from).transpose()) {
            Some(Ok(number)) => Ok(number.map(i64::from_be_bytes)),
            _ => self.try_get_unchecked(column),
        }
    }

    /// An interval: eight bytes of microseconds, four of days, four of months. The difference of two times
    /// has no months.
    fn micros(&self, column: usize) -> Result<Option<i64>, sqlx::Error> {
        let unreadable = || unfit(column)("no interval in binary form");
        let Some(interval) = binary(self, column).ok_or_else(unreadable)? else { return Ok(None) };
        let parts = interval.split_first_chunk().and_then(|(micros, rest)| {
            Some((i64::from_be_bytes(*micros), i32::from_be_bytes(*rest.first_chunk()?)))
        });
        let (micros, days) = parts.ok_or_else(unreadable)?;
        Ok(Some(micros.saturating_add(MICROS_PER_DAY * i64::from(days))))
    }
}

/// The bytes of a cell in binary form. The cell is read where it lies, because a cell that is moved out of its
/// result is copied, and the copy costs more than the decoding: the processor waits for what was just written.
fn binary(row: &PgRow, column: usize) -> Option<Option<&[u8]>> {
    match &row.try_get_raw(column) {
        Ok(cell) if cell.format() == PgValueFormat::Binary => match cell.is_null() {
            true => Some(None),
            false => cell.as_bytes().ok().map(Some),
        },
        _ => None,
    }
}
