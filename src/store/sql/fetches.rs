//! The lists of fetches, for databases that take them in the text of a statement.

use std::{collections::HashSet, sync::Arc};

use super::{
    decode::{RecordRow, record},
    statements::{list, of_handlers},
};
use crate::{
    partition::PartitionSet,
    record::{Record, RecordId},
    store::{IdScan, Pick, sql::records::numbers},
};

/// The fetches that one list of ids ahead serves at most, and the ids that the list covers at most.
const FETCHES_AHEAD: usize = 16;
const REACH_AHEAD: i64 = 65_536;

/// The rows below a scan that are read in addition to the records in memory. If there are more, the rows are
/// read by partition.
const ROWS_BELOW: usize = 4_096;

type Lists = Vec<(&'static str, String)>;

/// A list that is never empty: no record has the id 0.
fn skipped(ids: impl IntoIterator<Item = RecordId>) -> String {
    list(ids.into_iter().chain([0]))
}

pub(super) fn fetch_lists(partitions: PartitionSet, pick: Pick<'_>) -> Lists {
    vec![
        ("{partitions}", numbers(partitions)),
        ("{skip}", skipped(pick.skip.iter().copied())),
        ("{handlers}", of_handlers(pick.handlers)),
        ("{limit}", pick.limit.to_string()),
    ]
}

pub(super) fn head_lists(partitions: PartitionSet, skip: &[RecordId]) -> Lists {
    vec![("{partitions}", numbers(partitions)), ("{skip}", skipped(skip.iter().copied()))]
}

pub(super) fn scan_lists(scan: &IdScan<'_>) -> Lists {
    vec![
        ("{partitions}", numbers(scan.partitions)),
        ("{from}", scan.from.to_string()),
        ("{to}", scan.from.saturating_add(scan.reach).to_string()),
        ("{skip}", skipped(scan.skip_above())),
        ("{handlers}", of_handlers(scan.pick.handlers)),
        ("{limit}", scan.pick.limit.to_string()),
    ]
}

/// The lists of the statement that sees ids ahead of a scan, from its first id on.
pub(super) fn ahead_lists(scan: &IdScan<'_>) -> Lists {
    let limit = scan.pick.limit.saturating_mul(FETCHES_AHEAD);
    scan_lists(&IdScan { reach: REACH_AHEAD, pick: Pick { limit, ..scan.pick }, ..*scan })
}

/// The lists of the statements that read below a scan, and the number of rows at which the statements stop.
pub(super) fn below_lists(scan: &IdScan<'_>) -> (Lists, usize) {
    let most = scan.pick.skip.len() + ROWS_BELOW;
    let lists = vec![
        ("{partitions}", numbers(scan.partitions)),
        ("{to}", scan.from.to_string()),
        ("{handlers}", of_handlers(scan.pick.handlers)),
        ("{limit}", most.to_string()),
    ];
    (lists, most)
}

/// The pending ids below a scan that are not in memory, in order.
pub(super) fn late_ids(mut below: Vec<RecordId>, scan: &IdScan<'_>) -> Vec<RecordId> {
    let skip: HashSet<RecordId> = scan.pick.skip.iter().copied().collect();
    below.retain(|id| !skip.contains(id));
    below.sort_unstable();
    below
}

/// The lists of the statement that reads late records, at most as many as the scan may bring.
pub(super) fn late_lists(late: &[RecordId], scan: &IdScan<'_>) -> Lists {
    vec![("{ids}", list(late.iter().copied().take(scan.pick.limit)))]
}

/// The ids ahead that the scan does not bring. There are none if the scan brings late records only: then it has not
/// brought all of these, and they come before the ids ahead.
pub(super) fn left_ahead(
    mut ahead: Vec<RecordId>,
    late: &[RecordId],
    records: &[Arc<Record>],
    scan: &IdScan<'_>,
) -> Vec<RecordId> {
    let brought: HashSet<RecordId> = records.iter().map(|record| record.delivery.id).collect();
    ahead.retain(|id| late.len() < scan.pick.limit && !brought.contains(id));
    ahead
}

/// Decodes rows that are all records.
pub(super) fn records(rows: &[impl RecordRow]) -> Result<Vec<Arc<Record>>, sqlx::Error> {
    let mut records = Vec::with_capacity(rows.len());
    for row in rows {
        records.push(record(row, records.last())?);
    }
    Ok(records)
}

/// Rows whose cells sqlx decodes.
macro_rules! sqlx_cells {
    ($row:ty) => {
        impl crate::store::sql::decode::RecordRow for $row {
            fn bytes(&self, column: usize) -> Result<Option<&[u8]>, sqlx::Error> {
                sqlx::Row::try_get_unchecked(self, column)
            }

            fn int(&self, column: usize) -> Result<Option<i64>, sqlx::Error> {
                sqlx::Row::try_get_unchecked(self, column)
            }
        }
    };
}

/// The fetches of databases that take lists of integers in the text of a statement only.
macro_rules! sqlx_fetches {
    ($connection:ty) => {
        fn fetch_by_partition<'c>(
            conn: &'c mut $connection,
            sql: &'c std::sync::Arc<str>,
            partitions: &'c [crate::partition::Partition],
            pick: crate::store::Pick<'c>,
        ) -> crate::store::sql::driver::DriverResult<'c, Vec<std::sync::Arc<crate::record::Record>>> {
            Box::pin(async move {
                let mut records = Vec::new();
                // Ascending numbers are one range scan in index order.
                for part in partitions.chunk_by(|a, b| a < b) {
                    let part = part.iter().copied().collect();
                    let left = crate::store::Pick { limit: pick.limit - records.len(), ..pick };
                    let lists = crate::store::sql::fetches::fetch_lists(part, left);
                    records.extend(read(conn, sql, &lists).await?);
                    if records.len() >= pick.limit {
                        break;
                    }
                }
                Ok(records)
            })
        }

        fn fetch_due<'c>(
            conn: &'c mut $connection,
            sql: &'c std::sync::Arc<str>,
            partitions: crate::partition::PartitionSet,
            pick: crate::store::Pick<'c>,
        ) -> crate::store::sql::driver::DriverResult<'c, (Vec<std::sync::Arc<crate::record::Record>>, i64)> {
            use crate::store::sql::{fetches, statements::fill};
            Box::pin(async move {
                let sql = fill(sql, &fetches::fetch_lists(partitions, pick));
                records_and_changes(&sqlx::raw_sql(sql).fetch_all(conn).await?)
            })
        }

        fn scan_by_id<'c>(
            conn: &'c mut $connection,
            sql: &'c crate::store::sql::statements::Statements,
            scan: crate::store::IdScan<'c>,
        ) -> crate::store::sql::driver::DriverResult<'c, (Vec<std::sync::Arc<crate::record::Record>>, Horizon)> {
            use crate::store::sql::{
                fetches,
                statements::{fill, safe},
            };
            Box::pin(async move {
                let last_id = sqlx::query_scalar(safe(&sql.last_id)).fetch_one(&mut *conn).await?;
                let mut horizon = Horizon { last_id, ..Horizon::default() };
                let mut records = read(conn, &sql.scan_by_id, &fetches::scan_lists(&scan)).await?;
                if let Some(seen) = scan.ahead {
                    records.retain(|record| seen.binary_search(&record.delivery.id).is_ok());
                    return Ok((records, horizon));
                }
                let (Some(ahead), Some(below), Some(below_by_partition), Some(below_of_handlers), Some(late)) =
                    (&sql.ahead, &sql.below, &sql.below_by_partition, &sql.below_of_handlers, &sql.late)
                else {
                    return Ok((records, horizon));
                };
                let ids = |rows: &[_]| -> Result<Vec<i64>, sqlx::Error> {
                    rows.iter().filter_map(|row| get(row, 0).transpose()).collect()
                };
                let mut ids_ahead = Vec::new();
                if records.len() >= scan.pick.limit {
                    let rows = sqlx::raw_sql(fill(ahead, &fetches::ahead_lists(&scan))).fetch_all(&mut *conn).await?;
                    ids_ahead = ids(&rows)?;
                }
                // This read follows the others, so it sees all commits before those that the others have seen.
                let (lists, most) = fetches::below_lists(&scan);
                let all = *scan.pick.handlers == crate::store::Handlers::Every;
                let first = if all { below } else { below_of_handlers };
                let mut rows = sqlx::raw_sql(fill(first, &lists)).fetch_all(&mut *conn).await?;
                if all && rows.len() >= most {
                    rows = sqlx::raw_sql(fill(below_by_partition, &lists)).fetch_all(&mut *conn).await?;
                }
                let late_ids = fetches::late_ids(ids(&rows)?, &scan);
                if !late_ids.is_empty() {
                    records.extend(read(conn, late, &fetches::late_lists(&late_ids, &scan)).await?);
                    records.sort_unstable_by_key(|record| record.delivery.id);
                    records.truncate(scan.pick.limit);
                }
                horizon.ahead = fetches::left_ahead(ids_ahead, &late_ids, &records, &scan);
                Ok((records, horizon))
            })
        }

        fn find_head<'c>(
            conn: &'c mut $connection,
            sql: &'c crate::store::sql::statements::Statements,
            partitions: crate::partition::PartitionSet,
            skip: &'c [crate::record::RecordId],
        ) -> crate::store::sql::driver::DriverResult<'c, crate::rules::horizon::Head> {
            use crate::store::sql::{
                fetches,
                statements::{fill, safe},
            };
            Box::pin(async move {
                let last_id = sqlx::query_scalar(safe(&sql.last_id)).fetch_one(&mut *conn).await?;
                let first = fill(&sql.find_head, &fetches::head_lists(partitions, skip));
                let first = get::<i64>(&sqlx::raw_sql(first).fetch_one(conn).await?, 0)?;
                let horizon = Horizon { last_id, ..Horizon::default() };
                Ok(crate::rules::horizon::Head { first, horizon, number: None })
            })
        }
    };
}

pub(crate) use {sqlx_cells, sqlx_fetches};
