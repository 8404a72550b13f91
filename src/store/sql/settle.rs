//! Writing outcomes: the fence row first, then the whole batch, in one transaction.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde::Serialize;

use super::{
    SqlStore,
    call::{begin, commit, query, rollback},
    driver::{Driver, Kind, Value},
    ranges::{AtOnce, among, ranges},
    release::{lanes_of, release_steps, resume_lanes, stop_releases, takes_holds_of},
    statements::{Statements, fill, list, safe},
};
use crate::{
    record::{Change, OnFailure, RecordId, Settlement, Status, StopReason},
    store::{Completed, FenceRow, SettleError, Settled, StoreError},
};

/// The changes of a batch, sorted by the statement that writes them.
#[derive(Default)]
pub(super) struct Batch {
    /// Completed ids per count of failures.
    completed: BTreeMap<u32, Vec<RecordId>>,
    failures: Vec<FailureRow>,
    retrying: Vec<RecordId>,
    blocked: Vec<RecordId>,
    unroutable: Vec<RecordId>,
    /// Held ids per record that has stopped their lane.
    held: BTreeMap<RecordId, Vec<RecordId>>,
    resumed: BTreeSet<RecordId>,
    /// Releasing lanes that take a step, by the records that stopped them.
    released: BTreeSet<RecordId>,
    /// Releasing lanes that are stopped again: the record that stopped each lane, and the record that stops
    /// it now.
    stopped_again: Vec<(RecordId, RecordId)>,
}

/// One element of the JSON that `write_failures` reads.
#[derive(Serialize)]
struct FailureRow {
    id: RecordId,
    attempts: u32,
    /// 1 if the failed attempt counts, else 0.
    counted: u32,
    status: i64,
    /// The delay until the next attempt, in microseconds.
    delay: Option<u64>,
    error: String,
}

impl Batch {
    pub(super) fn sort(settlements: &[Settlement]) -> Self {
        let mut batch = Self::default();
        for settlement in settlements {
            batch.add(settlement);
        }
        batch
    }

    fn add(&mut self, Settlement { id, failures, change }: &Settlement) {
        let mut fail = |status: Status, delay: Option<Duration>, error: &str, counted: bool| {
            let delay = delay.map(|delay| u64::try_from(delay.as_micros()).unwrap_or(u64::MAX >> 1));
            let error = error.to_owned();
            self.failures.push(FailureRow {
                id: *id,
                attempts: *failures,
                counted: u32::from(counted),
                status: status.code(),
                delay,
                error,
            });
        };
        match change {
            Change::Complete => self.completed.entry(*failures).or_default().push(*id),
            Change::CompleteAndResume => {
                self.completed.entry(*failures).or_default().push(*id);
                self.resumed.insert(*id);
            }
            Change::Resume => drop(self.resumed.insert(*id)),
            Change::Release => drop(self.released.insert(*id)),
            Change::StopRelease { by } => self.stopped_again.push((*id, *by)),
            Change::Retry { delay, error, stop, counted } => {
                fail(Status::Delayed, Some(*delay), error, *counted);
                if *stop {
                    self.retrying.push(*id);
                }
            }
            Change::Fail { error, lane, counted } => {
                fail(Status::Failed, None, error, *counted);
                match lane {
                    OnFailure::Block => self.blocked.push(*id),
                    OnFailure::Continue => drop(self.resumed.insert(*id)),
                }
            }
            Change::Unroutable => self.unroutable.push(*id),
            Change::Hold { behind } => self.held.entry(*behind).or_default().push(*id),
        }
    }

    /// The number of outcomes to write, without holds.
    fn outcomes(&self) -> usize {
        self.completed.values().map(Vec::len).sum::<usize>() + self.failures.len() + self.unroutable.len()
    }

    /// Leaves out records that another write has settled: they write nothing, stop no lane and release none.
    /// `found` has the current attempts and status per record.
    fn leave_out_stale(&mut self, found: &BTreeMap<RecordId, (i64, i64)>) {
        let open = [Status::Pending.code(), Status::Delayed.code()];
        let is_open = |id: RecordId, failures: u32| {
            found
                .get(&id)
                .is_some_and(|(attempts, status)| *attempts == i64::from(failures) && open.contains(status))
        };
        let mut stale = BTreeSet::new();
        let mut keep = |id: RecordId, kept: bool| kept || !stale.insert(id);
        for (failures, ids) in &mut self.completed {
            ids.retain(|id| keep(*id, is_open(*id, *failures)));
        }
        self.failures.retain(|row| keep(row.id, is_open(row.id, row.attempts)));
        self.unroutable
            .retain(|id| keep(*id, found.get(id).is_some_and(|(_, status)| open.contains(status))));
        self.retrying.retain(|id| !stale.contains(id));
        self.blocked.retain(|id| !stale.contains(id));
        self.resumed.retain(|id| !stale.contains(id));
        for ids in self.held.values_mut() {
            ids.retain(|id| found.get(id).is_some_and(|(_, status)| open.contains(status)));
        }
        self.held.retain(|_, ids| !ids.is_empty());
    }

    /// The count of failures and the ids, if the batch has only completions with one count.
    fn completes_alike(&self) -> Option<(u32, &[RecordId])> {
        let alone = self.failures.is_empty()
            && self.unroutable.is_empty()
            && self.held.is_empty()
            && self.resumed.is_empty()
            && self.released.is_empty()
            && self.stopped_again.is_empty()
            && self.completed.len() == 1;
        self.completed.first_key_value().filter(|_| alone).map(|(failures, ids)| (*failures, ids.as_slice()))
    }
}

impl<D: Driver> SqlStore<D> {
    pub(super) async fn settle_batch(
        &self,
        fence: FenceRow,
        settlements: &[Settlement],
    ) -> Result<Settled, SettleError> {
        let batch = Batch::sort(settlements);
        let done = match (&self.at_once, batch.completes_alike()) {
            (Some(sql), Some((failures, ids))) => self.settle_at_once(sql, fence, ids, failures).await?,
            _ => self.settle_in_steps(fence, batch).await?,
        };
        done.ok_or(SettleError::Fenced)
    }

    /// Writes the fence row and completions with one count of failures in one statement.
    async fn settle_at_once(
        &self,
        sql: &AtOnce,
        fence: FenceRow,
        ids: &[RecordId],
        failures: u32,
    ) -> Result<Option<Settled>, StoreError> {
        let ranges: Option<(Vec<_>, Vec<_>)> = ranges(ids).map(|ranges| ranges.into_iter().unzip());
        let ranges = ranges.as_ref().map(|(first, last)| (&first[..], &last[..]));
        let sql = sql.of(ranges.is_some());
        self.call("settle", async {
            let mut conn = self.settle.borrow().await?;
            let done = match ranges {
                Some((first, last)) => {
                    D::complete_at_once(&mut conn, sql, fence, first, Some(last), failures).await?
                }
                None => D::complete_at_once(&mut conn, sql, fence, ids, None, failures).await?,
            };
            let (moved, applied, number) = done;
            conn.keep();
            Ok((moved == 1).then_some(Settled { applied, number: Some(number), ..Settled::default() }))
        })
        .await
    }

    /// Writes the fence row first, then runs one statement per kind of outcome, then commits.
    async fn settle_in_steps(
        &self,
        fence: FenceRow,
        mut batch: Batch,
    ) -> Result<Option<Settled>, StoreError> {
        self.call("settle", async {
            let mut conn = self.settle.borrow().await?;
            begin::<D>(&mut conn).await?;
            if !move_fence::<D>(&mut conn, &self.sql.move_fence, fence).await? {
                rollback::<D>(&mut conn).await?;
                conn.keep();
                return Ok(None);
            }
            let (mut settled, is_as_expected) = self.write_batch(&mut conn, &batch).await?;
            if !is_as_expected {
                // The counts do not tell which records differ, so the settle begins again and reads the
                // records first.
                rollback::<D>(&mut conn).await?;
                begin::<D>(&mut conn).await?;
                if !move_fence::<D>(&mut conn, &self.sql.move_fence, fence).await? {
                    return Ok(None);
                }
                batch.leave_out_stale(&self.read_records(&mut conn, &batch).await?);
                (settled, _) = self.write_batch(&mut conn, &batch).await?;
            }
            settled.releasing = resume_lanes::<D>(&mut conn, &self.sql, &batch.resumed).await?;
            release_steps::<D>(&mut conn, &self.sql, &batch.released).await?;
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(Some(settled))
        })
        .await
    }

    /// Writes outcomes, stops and holds. Returns also whether all records were as expected.
    async fn write_batch(
        &self,
        conn: &mut D::Connection,
        batch: &Batch,
    ) -> Result<(Settled, bool), sqlx::Error> {
        let applied = self.write_outcomes(conn, batch).await?;
        stop_releases::<D>(conn, &self.sql.stop_release, &batch.stopped_again).await?;
        self.stop_lanes(conn, StopReason::Retrying, &batch.retrying).await?;
        self.stop_lanes(conn, StopReason::Blocked, &batch.blocked).await?;
        self.stop_lanes(conn, StopReason::Unroutable, &batch.unroutable).await?;
        let (held, is_counted) = self.write_holds(conn, batch).await?;
        Ok((Settled { applied, held, ..Settled::default() }, is_counted && applied == batch.outcomes()))
    }

    /// Writes the outcomes of records. Returns the number of records that were as expected.
    async fn write_outcomes(&self, conn: &mut D::Connection, batch: &Batch) -> Result<usize, sqlx::Error> {
        Ok(complete::<D>(conn, &self.sql, self.settings.completed, &batch.completed).await?
            + self.write_failures(conn, batch).await?
            + self.set_aside(conn, &batch.unroutable).await?)
    }

    /// Locks the records of a batch and reads their attempts and status.
    async fn read_records(
        &self,
        conn: &mut D::Connection,
        batch: &Batch,
    ) -> Result<BTreeMap<RecordId, (i64, i64)>, sqlx::Error> {
        const KINDS: &[Kind] = &[Kind::Int, Kind::Int, Kind::Int];
        let completed = batch.completed.values().flatten().copied();
        let failed = batch.failures.iter().map(|row| row.id);
        let held = batch.held.values().flatten().copied();
        let ids = completed.chain(failed).chain(batch.unroutable.iter().copied()).chain(held);
        let sql = fill(&self.sql.lock_records, &[("{ids}", list(ids))]);
        let rows = query::<D>(conn, sql, Vec::new(), KINDS).await?;
        Ok(rows.iter().map(|row| (row.int(0), (row.int(1), row.int(2)))).collect())
    }

    async fn write_failures(&self, conn: &mut D::Connection, batch: &Batch) -> Result<usize, sqlx::Error> {
        if batch.failures.is_empty() {
            return Ok(0);
        }
        let json =
            serde_json::to_string(&batch.failures).map_err(|error| sqlx::Error::Encode(error.into()))?;
        Ok(D::execute(conn, safe(&self.sql.write_failures), vec![json.into()]).await? as usize)
    }

    async fn stop_lanes(
        &self,
        conn: &mut D::Connection,
        reason: StopReason,
        ids: &[RecordId],
    ) -> Result<(), sqlx::Error> {
        if ids.is_empty() {
            return Ok(());
        }
        let ids = [("{ids}", list(ids.iter().copied()))];
        for sql in [&self.sql.reason_of_lanes, &self.sql.stop_lanes] {
            D::execute(conn, fill(sql, &ids), vec![reason.as_str().into()]).await?;
        }
        Ok(())
    }

    /// Takes records out of the pending set. Returns their number.
    async fn set_aside(&self, conn: &mut D::Connection, ids: &[RecordId]) -> Result<usize, sqlx::Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        let ids = [("{ids}", list(ids.iter().copied()))];
        Ok(D::execute(conn, fill(&self.sql.set_aside, &ids), Vec::new()).await? as usize)
    }

    /// Holds records behind lanes that are still stopped; the other records stay pending. Returns the number
    /// of held records, and whether the counts of the lanes are right: they are not if a record was not open
    /// any more.
    async fn write_holds(
        &self,
        conn: &mut D::Connection,
        batch: &Batch,
    ) -> Result<(usize, bool), sqlx::Error> {
        if batch.held.is_empty() {
            return Ok((0, true));
        }
        let behind = ("{ids}", list(batch.held.keys().copied()));
        let counts = batch.held.iter().map(|(record, held)| format!("WHEN {record} THEN {}", held.len()));
        let counts = ("{counts}", counts.collect::<Vec<_>>().join(" "));
        D::execute(conn, fill(&self.sql.count_held, &[behind, counts]), Vec::new()).await?;
        let mut held = Vec::new();
        for lane in lanes_of::<D>(conn, &self.sql, batch.held.keys().copied()).await? {
            let ids = batch.held.get(&lane.record).into_iter().flatten().copied();
            held.extend(ids.filter(|id| takes_holds_of(&lane, *id)));
        }
        let written = self.set_aside(conn, &held).await?;
        Ok((written, written == held.len()))
    }
}

/// Completes records per count of failures. Returns the number of records that were as expected.
pub(super) async fn complete<D: Driver>(
    conn: &mut D::Connection,
    sql: &Statements,
    completed: Completed,
    records: &BTreeMap<u32, Vec<RecordId>>,
) -> Result<usize, sqlx::Error> {
    let mut applied = 0;
    for (failures, ids) in records {
        // All values are in the text. The text differs each time, so preparing it would cost a round trip
        // without gain.
        let lists = [among(&D::DIALECT, ids), ("{attempts}", failures.to_string())];
        let write = match completed {
            Completed::Keep => &sql.complete_keep,
            Completed::Delete => &sql.complete_delete,
            Completed::Archive => {
                D::execute(conn, fill(&sql.copy_to_archive, &lists), Vec::new()).await?;
                &sql.complete_delete
            }
        };
        applied += D::execute(conn, fill(write, &lists), Vec::new()).await?;
    }
    Ok(applied as usize)
}

/// The fence: moves the counter on. Returns false if the row does not have the expected counter.
pub(super) async fn move_fence<D: Driver>(
    conn: &mut D::Connection,
    sql: &Arc<str>,
    fence: FenceRow,
) -> Result<bool, sqlx::Error> {
    let numbers = [i64::from(fence.slot), fence.counter, fence.server.0].map(Value::Int);
    let values = [fence.instance.to_string().into()].into_iter().chain(numbers).collect();
    Ok(D::execute(conn, safe(sql), values).await? == 1)
}
