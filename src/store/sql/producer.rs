//! The producer's side: inserting on the user's own connection.

use std::sync::Arc;

use super::{
    call::store_error,
    driver::Driver,
    insert::Insert,
    statements::{safe, template},
};
use crate::{
    record::{Due, NewRecord},
    store::{ErrorClass, StoreError, Tables},
};

/// Rows of one statement at most: eight parameters each stay below every driver's limit.
const CHUNK: usize = 1000;

/// Inserts records in the order given, in few statements.
pub(crate) async fn insert<D: Driver>(
    conn: &mut D::Connection,
    tables: &Tables,
    records: &[NewRecord],
) -> Result<(), StoreError> {
    for group in records.chunk_by(|a, b| a.due == b.due) {
        let due = due::<D>(group[0].due)?;
        for rows in group.chunks(CHUNK) {
            let insert = Insert { tables, rows, due };
            D::insert_rows(conn, insert).await.map_err(|error| store_error::<D>("insert", error))?;
        }
    }
    Ok(())
}

/// Notes a dedup key; false if it was there.
pub(crate) async fn note_dedup_key<D: Driver>(
    conn: &mut D::Connection,
    tables: &Tables,
    dedup_key: &str,
) -> Result<bool, StoreError> {
    let sql = D::DIALECT.render(template!("", note_dedup_key), tables);
    let noted = D::execute(conn, safe(&Arc::from(sql)), vec![dedup_key.into()]).await;
    Ok(noted.map_err(|error| store_error::<D>("note dedup key", error))? == 1)
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
