//! The table of records with its indexes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::journal::{Journal, Written};
use crate::{
    instance::{Generation, InstanceId},
    partition::{Partition, PartitionSet},
    record::{Delivery, Lane, NewRecord, Record, RecordId, Status},
    store::RETURNED_BY_A_STEP,
};

/// One row of `outbox_record`.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) new: NewRecord,
    pub(super) created: Instant,
    pub(super) status: Status,
    pub(super) attempts: u32,
    /// The time of the next attempt. Set while the status is delayed.
    pub(super) next_attempt: Option<Instant>,
    /// The deadline.
    pub(super) expires: Option<Instant>,
    pub(super) completed: Option<Instant>,
    pub(super) last_error: Option<String>,
    /// The owner of the claim. The time of the next attempt is then the end of the lease.
    pub(super) lock_owner: Option<InstanceId>,
    /// The token of the last claim.
    pub(super) lock_token: i64,
    /// How many claims in a row have ended because their leases ran out.
    pub(super) lock_crashes: Option<u32>,
}

/// All rows, and indexes of the rows that a worker reads, in the order of the reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    journal: Journal,
    rows: BTreeMap<RecordId, Row>,
    pending: BTreeSet<(Partition, RecordId)>,
    delayed: BTreeSet<(Partition, Option<Instant>, RecordId)>,
    held: HashMap<Lane, BTreeSet<RecordId>>,
}

impl Row {
    /// A pending row of a record that was not handled yet.
    pub(super) fn pending(new: NewRecord, created: Instant) -> Self {
        Self {
            new,
            created,
            status: Status::Pending,
            attempts: 0,
            next_attempt: None,
            expires: None,
            completed: None,
            last_error: None,
            lock_owner: None,
            lock_token: 0,
            lock_crashes: None,
        }
    }

    pub(super) fn lane(&self) -> Lane {
        Lane {
            partition: self.new.partition,
            key: self.new.key.as_str().into(),
            handler: self.new.handler.clone(),
        }
    }

    /// Whether an outcome may still be written.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.status, Status::Pending | Status::Delayed)
    }

    fn record(&self, id: RecordId, now: Instant) -> Arc<Record> {
        let new = self.new.clone();
        Arc::new(Record {
            delivery: Delivery {
                id,
                event_id: new.event_id,
                key: new.key.into(),
                handler: new.handler,
                record_type: new.record_type,
                content_type: new.content_type,
                partition: new.partition,
                generation: Generation::default(),
                attempt: self.attempts.saturating_add(1),
                headers: new.headers,
                age: now.saturating_duration_since(self.created),
                expires_in: self.expires.map(|at| at.saturating_duration_since(now)),
            },
            payload: new.payload,
        })
    }
}

impl Rows {
    pub(super) fn open_journal(&mut self) {
        self.journal.open();
    }

    pub(super) fn take_journal(&mut self) -> Vec<Written> {
        self.journal.take()
    }

    pub(super) fn insert(&mut self, id: RecordId, row: Row) {
        let (event_id, status) = (row.new.event_id, row.status);
        self.journal.push(|| Written::Stored { id, event_id, lane: row.lane(), status });
        self.put(id, row);
    }

    pub(super) fn remove(&mut self, id: RecordId) -> Option<Row> {
        let row = self.take(id)?;
        self.journal.push(|| Written::Changed { id, status: None, attempts: row.attempts });
        Some(row)
    }

    pub(super) fn get(&self, id: RecordId) -> Option<&Row> {
        self.rows.get(&id)
    }

    /// Changes a row and updates the indexes. Returns false if there is no such row.
    pub(super) fn change(&mut self, id: RecordId, change: impl FnOnce(&mut Row)) -> bool {
        let Some(mut row) = self.take(id) else { return false };
        change(&mut row);
        self.journal.push(|| Written::Changed { id, status: Some(row.status), attempts: row.attempts });
        self.put(id, row);
        true
    }

    /// Claims a record for this owner. Returns the token of the claim.
    pub(super) fn claim(
        &mut self,
        id: RecordId,
        owner: InstanceId,
        lease: Duration,
        now: Instant,
    ) -> Generation {
        let Some(row) = self.rows.get_mut(&id) else { return Generation::default() };
        // The present owner has let its lease run out.
        row.lock_crashes = row.lock_owner.map(|_| row.lock_crashes.unwrap_or_default() + 1);
        row.lock_owner = Some(owner);
        row.lock_token += 1;
        let token = Generation(row.lock_token);
        self.journal.push(|| Written::RecordClaimed { id, owner, token, left: lease });
        self.change(id, |row| {
            row.status = Status::Delayed;
            row.next_attempt = now.checked_add(lease);
        });
        token
    }

    /// Begins the lease of a claimed record again.
    pub(super) fn renew(&mut self, id: RecordId, owner: InstanceId, lease: Duration, now: Instant) {
        let Some(mut row) = self.take(id) else { return };
        row.next_attempt = now.checked_add(lease);
        let token = Generation(row.lock_token);
        self.journal.push(|| Written::RecordClaimed { id, owner, token, left: lease });
        self.put(id, row);
    }

    /// Ends the claim of a record, if it is still there.
    pub(super) fn end_claim(&mut self, id: RecordId) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        (row.lock_owner, row.lock_crashes) = (None, None);
        let token = Generation(row.lock_token);
        self.journal.push(|| Written::RecordUnclaimed { id, token });
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (RecordId, &Row)> {
        self.rows.iter().map(|(id, row)| (*id, row))
    }

    /// The pending records of a partition, in id order from its head.
    pub(super) fn pending(&self, partition: Partition, now: Instant) -> impl Iterator<Item = Arc<Record>> {
        let range = self.pending.range((partition, RecordId::MIN)..=(partition, RecordId::MAX));
        self.records(range.map(|(_, id)| *id), now)
    }

    /// The pending records of these partitions with ids in a range, in id order.
    pub(super) fn scan(
        &self,
        partitions: PartitionSet,
        ids: Range<RecordId>,
        now: Instant,
    ) -> impl Iterator<Item = Arc<Record>> {
        let of = |partition| self.pending.range((partition, ids.start)..(partition, ids.end));
        let mut found: Vec<RecordId> = partitions.iter().flat_map(of).map(|(_, id)| *id).collect();
        found.sort_unstable();
        self.records(found.into_iter(), now)
    }

    /// The ids of all records in a range, in ascending order.
    pub(super) fn ids(&self, ids: Range<RecordId>) -> impl Iterator<Item = RecordId> {
        self.rows.range(ids).map(|(id, _)| *id)
    }

    /// The first pending record of these partitions.
    pub(super) fn head(&self, partitions: PartitionSet, skip: &[RecordId]) -> Option<RecordId> {
        let skip: HashSet<RecordId> = skip.iter().copied().collect();
        let of = |partition| self.pending.range((partition, RecordId::MIN)..=(partition, RecordId::MAX));
        let first = |partition| of(partition).map(|(_, id)| *id).find(|id| !skip.contains(id));
        partitions.iter().filter_map(first).min()
    }

    /// The delayed records of a partition whose time has come, the longest due first.
    pub(super) fn due(&self, partition: Partition, now: Instant) -> impl Iterator<Item = Arc<Record>> {
        let range =
            self.delayed.range((partition, None, RecordId::MIN)..=(partition, Some(now), RecordId::MAX));
        self.records(range.map(|(_, _, id)| *id), now)
    }

    /// The first held records of a lane above an id, at most as many as a step returns.
    pub(super) fn held_after(&self, lane: &Lane, after: RecordId) -> Vec<RecordId> {
        let above = self.held.get(lane).into_iter().flat_map(|held| held.range(after + 1..));
        above.take(RETURNED_BY_A_STEP).copied().collect()
    }

    /// Makes the first held records of a lane pending again, at most `most`.
    pub(super) fn return_held(&mut self, lane: &Lane, most: usize) {
        let first: Vec<RecordId> = self.held.get(lane).into_iter().flatten().take(most).copied().collect();
        for id in first {
            self.change(id, |row| row.status = Status::Pending);
        }
    }

    /// Deletes completed rows of this age. Returns their number.
    pub(super) fn purge_completed(&mut self, older_than: Duration, now: Instant) -> u64 {
        let old = |row: &Row| {
            row.status == Status::Completed
                && row.completed.is_some_and(|at| now.saturating_duration_since(at) >= older_than)
        };
        let ids: Vec<RecordId> = self.all().filter(|(_, row)| old(row)).map(|(id, _)| id).collect();
        ids.iter().filter_map(|id| self.remove(*id)).count() as u64
    }

    fn put(&mut self, id: RecordId, row: Row) {
        self.index(id, &row);
        self.rows.insert(id, row);
    }

    fn take(&mut self, id: RecordId) -> Option<Row> {
        let row = self.rows.remove(&id)?;
        self.unindex(id, &row);
        Some(row)
    }

    fn records(
        &self,
        ids: impl Iterator<Item = RecordId>,
        now: Instant,
    ) -> impl Iterator<Item = Arc<Record>> {
        ids.filter_map(move |id| self.rows.get(&id).map(|row| row.record(id, now)))
    }

    fn index(&mut self, id: RecordId, row: &Row) {
        match row.status {
            Status::Pending => drop(self.pending.insert((row.new.partition, id))),
            Status::Delayed => drop(self.delayed.insert((row.new.partition, row.next_attempt, id))),
            Status::Held => drop(self.held.entry(row.lane()).or_default().insert(id)),
            Status::Completed | Status::Failed => {}
        }
    }

    fn unindex(&mut self, id: RecordId, row: &Row) {
        match row.status {
            Status::Pending => drop(self.pending.remove(&(row.new.partition, id))),
            Status::Delayed => drop(self.delayed.remove(&(row.new.partition, row.next_attempt, id))),
            Status::Held => {
                let lane = row.lane();
                let rest = self.held.get_mut(&lane).map_or(0, |ids| {
                    ids.remove(&id);
                    ids.len()
                });
                if rest == 0 {
                    self.held.remove(&lane);
                }
            }
            Status::Completed | Status::Failed => {}
        }
    }
}
