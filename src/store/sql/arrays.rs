//! Many rows in one statement, for PostgreSQL, which takes arrays.

use sqlx::{Postgres, postgres::PgArguments, query::Query};
use uuid::Uuid;

use super::insert::headers_text;
use crate::record::NewRecord;

/// Binds an array per column. What all records have in common is bound once.
pub(super) fn bind_columns<'q>(
    query: Query<'q, Postgres, PgArguments>,
    rows: &'q [NewRecord],
) -> Query<'q, Postgres, PgArguments> {
    query
        .bind(rows.iter().map(|row| row.event_id).collect::<Vec<Uuid>>())
        .bind(rows.iter().map(|row| i16::from(row.partition.number())).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>())
        .bind(once_if_alike(rows, |row| &row.handler))
        .bind(once_if_alike(rows, |row| &row.record_type))
        .bind(once_if_alike(rows, |row| &row.content_type))
        .bind(rows.iter().map(|row| row.payload.as_slice()).collect::<Vec<_>>())
        .bind(rows.first().and_then(|row| headers_text(&row.headers)))
}

/// A column of the records, or one element if all records have the same value.
fn once_if_alike(rows: &[NewRecord], column: fn(&NewRecord) -> &str) -> Vec<&str> {
    let alike = rows.windows(2).all(|pair| column(&pair[0]) == column(&pair[1]));
    rows.iter().take(if alike { 1 } else { rows.len() }).map(column).collect()
}
