//! Lanes that go on: their held records become pending again, at once or, if they are many, in steps.
//!
//! A million held records cannot return within one call, and would delay the records of all other lanes. The
//! row of such a lane therefore stays, with the reason `releasing` and the id up to which records have
//! returned. The owner of the partition returns the next records when it has fetched most of the returned
//! ones.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    call::query,
    dialect::Family,
    driver::{Driver, Kind, Row, Value},
    statements::{Statements, fill, list, safe},
};
use crate::{
    record::{RecordId, StopReason},
    store::{RETURNED_AT_ONCE, RETURNED_BY_A_STEP},
};

/// The rows that a step reads on a database without an index of the held records per lane (MySQL).
const READ_BY_A_STEP: usize = 5_000;

/// A row of `outbox_lane` that is about to go on.
pub(super) struct StoppedRow {
    partition: i64,
    key: String,
    handler: String,
    pub(super) record: RecordId,
    in_steps: bool,
    pub(super) releasing: bool,
    pub(super) released_to: RecordId,
}

/// The lanes that these records have stopped.
pub(super) async fn lanes_of<D: Driver>(
    conn: &mut D::Connection,
    sql: &Statements,
    records: impl IntoIterator<Item = RecordId>,
) -> Result<Vec<StoppedRow>, sqlx::Error> {
    const KINDS: &[Kind] = &[Kind::Int, Kind::Text, Kind::Text, Kind::Int, Kind::Int, Kind::Text, Kind::Int];
    let lists = [("{ids}", list(records)), ("{limit}", RETURNED_AT_ONCE.to_string())];
    let rows = query::<D>(conn, fill(&sql.lanes_of, &lists), Vec::new(), KINDS).await?;
    let stopped = |row: &Row| StoppedRow {
        partition: row.int(0),
        key: row.text(1),
        handler: row.text(2),
        record: row.int(3),
        in_steps: row.int(4) == 1,
        releasing: row.text(5) == StopReason::Releasing.as_str(),
        released_to: row.int(6),
    };
    Ok(rows.iter().map(stopped).collect())
}

/// Removes the stops of these records. The rows of the stops are written first: a concurrent hold either
/// counts before, and its records return, or finds no row. Returns the number of lanes that go on in steps.
pub(super) async fn resume_lanes<D: Driver>(
    conn: &mut D::Connection,
    sql: &Statements,
    records: &BTreeSet<RecordId>,
) -> Result<usize, sqlx::Error> {
    if records.is_empty() {
        return Ok(0);
    }
    let lanes = lanes_of::<D>(conn, sql, records.iter().copied()).await?;
    let (in_steps, at_once): (Vec<_>, Vec<_>) =
        lanes.into_iter().partition(|lane| lane.in_steps || lane.releasing);
    if !in_steps.is_empty() {
        let ids = [("{ids}", list(in_steps.iter().map(|lane| lane.record)))];
        D::execute(conn, fill(&sql.begin_release, &ids), Vec::new()).await?;
    }
    if !at_once.is_empty() {
        let ids = [("{ids}", list(at_once.iter().map(|lane| lane.record)))];
        D::execute(conn, fill(&sql.resume_lanes, &ids), Vec::new()).await?;
    }
    for lane in at_once {
        let values = vec![lane.partition.into(), lane.key.into(), lane.handler.into()];
        D::execute(conn, safe(&sql.return_held), values).await?;
    }
    Ok(in_steps.len())
}

/// Takes one step for each of these lanes that is still releasing.
pub(super) async fn release_steps<D: Driver>(
    conn: &mut D::Connection,
    sql: &Statements,
    records: &BTreeSet<RecordId>,
) -> Result<(), sqlx::Error> {
    if records.is_empty() {
        return Ok(());
    }
    for lane in lanes_of::<D>(conn, sql, records.iter().copied()).await? {
        if lane.releasing {
            release_step::<D>(conn, sql, &lane).await?;
        }
    }
    Ok(())
}

async fn release_step<D: Driver>(
    conn: &mut D::Connection,
    sql: &Statements,
    lane: &StoppedRow,
) -> Result<(), sqlx::Error> {
    let read = match D::FAMILY {
        Family::MySql => READ_BY_A_STEP,
        Family::Postgres | Family::Sqlite => RETURNED_BY_A_STEP,
    };
    let held = fill(&sql.held_of_lane, &[("{limit}", read.to_string())]);
    let values: Vec<Value> = vec![
        lane.key.as_str().into(),
        lane.handler.as_str().into(),
        lane.partition.into(),
        lane.released_to.into(),
    ];
    let rows = query::<D>(conn, held, values, &[Kind::Int, Kind::Int]).await?;
    let mut ids: Vec<RecordId> = rows.iter().filter(|row| row.int(1) == 1).map(|row| row.int(0)).collect();
    let is_last = rows.len() < read && ids.len() <= RETURNED_BY_A_STEP;
    // Rows of other lanes that this step has read are not read again.
    let cut = ids.len() > RETURNED_BY_A_STEP;
    ids.truncate(RETURNED_BY_A_STEP);
    let to = if cut { ids.last().copied() } else { rows.last().map(|row| row.int(0)) };
    match is_last {
        true => {
            let row = [("{ids}", lane.record.to_string())];
            D::execute(conn, fill(&sql.resume_lanes, &row), Vec::new()).await?;
        }
        false => {
            let step = fill(&sql.release_step, &[("{returned}", ids.len().to_string())]);
            let to = to.unwrap_or(lane.released_to);
            D::execute(conn, step, vec![to.into(), lane.record.into()]).await?;
        }
    }
    if !ids.is_empty() {
        let ids = [("{ids}", list(ids))];
        D::execute(conn, fill(&sql.return_some, &ids), Vec::new()).await?;
    }
    Ok(())
}

/// Whether a record may be held behind this lane. A record that has returned is not held again.
pub(super) fn takes_holds_of(lane: &StoppedRow, id: RecordId) -> bool {
    !lane.releasing || id > lane.released_to
}

/// Stops lanes that are releasing by other records of theirs.
pub(super) async fn stop_releases<D: Driver>(
    conn: &mut D::Connection,
    sql: &Arc<str>,
    stopped: &[(RecordId, RecordId)],
) -> Result<(), sqlx::Error> {
    for (record, by) in stopped {
        D::execute(conn, safe(sql), vec![(*by).into(), (*record).into()]).await?;
    }
    Ok(())
}
