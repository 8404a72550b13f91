//! A small model of a database: ids are drawn in order, transactions commit in any order, and statements see both.

#![allow(clippy::unwrap_used, reason = "a property fails by panicking")]

use std::collections::BTreeMap;

use keylane::{
    RecordId,
    partition::{Partition, PartitionSet},
    rules::{horizon::Horizon, witnesses::Snapshot},
};

pub(crate) const PARTITIONS: usize = 3;
pub(crate) const KEYS: usize = 4;

/// The transaction of the settler, beside those of the writers.
pub(crate) const SETTLER: usize = usize::MAX;

/// How the database lets a reader know when an id is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By the numbers of transactions, each drawn before the ids: PostgreSQL, memory.
    Numbered,
    /// Not at all. Each scan also brings records that were committed late: MySQL.
    Late,
    /// There is one writer at a time, so ids become visible in their order: SQLite.
    Serial,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: usize,
    /// Times, counted in steps of the world.
    pub(crate) scheduled: u32,
    pub(crate) committed: u32,
    pub(crate) held: bool,
}

struct Open {
    number: i64,
    rows: BTreeMap<RecordId, Row>,
}

pub(crate) struct Table {
    pub(crate) kind: Kind,
    pub(crate) now: u32,
    last_id: RecordId,
    /// How far ids are apart.
    stride: i64,
    last_number: i64,
    /// The highest number of a transaction that has ended.
    last_ended: i64,
    open: BTreeMap<usize, Open>,
    pub(crate) rows: BTreeMap<RecordId, Row>,
}

pub(crate) fn partition(key: usize) -> Partition {
    Partition::new((key % PARTITIONS) as i64).unwrap()
}

impl Table {
    pub(crate) fn new(kind: Kind, stride: i64) -> Self {
        Self {
            kind,
            now: 0,
            last_id: 0,
            stride,
            last_number: 0,
            last_ended: 0,
            open: BTreeMap::new(),
            rows: BTreeMap::new(),
        }
    }

    /// Gives the transaction its number, if it has none yet. Returns false if it would wait for another writer.
    pub(crate) fn begin(&mut self, who: usize) -> bool {
        if self.kind == Kind::Serial && self.open.keys().any(|other| *other != who) {
            return false;
        }
        if !self.open.contains_key(&who) {
            let number = self.draw_number();
            self.open.insert(who, Open { number, rows: BTreeMap::new() });
        }
        true
    }

    pub(crate) fn insert(&mut self, who: usize, key: usize) {
        if self.begin(who) {
            self.last_id += self.stride;
            let row = Row { key, scheduled: self.now, committed: 0, held: false };
            self.open.get_mut(&who).unwrap().rows.insert(self.last_id, row);
        }
    }

    /// Commits the transaction, if it is open. Returns its number.
    pub(crate) fn commit(&mut self, who: usize) -> Option<i64> {
        let Open { number, rows } = self.open.remove(&who)?;
        self.last_ended = self.last_ended.max(number);
        let now = self.now;
        self.rows.extend(rows.into_iter().map(|(id, row)| (id, Row { committed: now, ..row })));
        Some(number)
    }

    pub(crate) fn roll_back(&mut self, who: usize) {
        let open = self.open.remove(&who);
        self.last_ended = self.last_ended.max(open.as_ref().map_or(0, |open| open.number));
        if self.kind == Kind::Serial {
            self.last_id -= open.map_or(0, |open| open.rows.len() as i64) * self.stride;
        }
    }

    /// Rolls the last insert of a transaction back to a savepoint. The savepoint had a number of its own.
    pub(crate) fn roll_back_to_savepoint(&mut self, who: usize) {
        if self.kind != Kind::Serial {
            self.draw_number();
            self.open.get_mut(&who).and_then(|open| open.rows.pop_last());
        }
    }

    /// Commits the transactions of all writers.
    pub(crate) fn commit_writers(&mut self) {
        while let Some(who) = self.open.keys().find(|who| **who != SETTLER).copied() {
            // What is committed in one moment is of one transaction.
            self.now += 1;
            self.commit(who);
        }
    }

    /// Draws ids that are never inserted.
    pub(crate) fn burn(&mut self, ids: i64) {
        if self.kind != Kind::Serial || self.open.is_empty() {
            self.whole();
            self.last_id += ids;
        }
    }

    pub(crate) fn draw_number(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }

    /// Begins and ends a transaction at once. Returns its number.
    pub(crate) fn whole(&mut self) -> i64 {
        let number = self.draw_number();
        self.last_ended = number;
        number
    }

    /// The open transactions that have written nothing that they can still commit.
    pub(crate) fn bystanders(&self) -> Vec<i64> {
        self.open.values().filter(|open| open.rows.is_empty()).map(|open| open.number).collect()
    }

    /// The last id as a statement reads it.
    pub(crate) fn last_id(&self) -> RecordId {
        let uncommitted = self.open.values().map(|open| open.rows.len() as i64).sum::<i64>();
        match self.kind {
            Kind::Numbered => self.last_id,
            Kind::Late => self.rows.keys().next_back().copied().unwrap_or(0),
            Kind::Serial => self.last_id - uncommitted * self.stride,
        }
    }

    /// The snapshot of a statement. It does not list transactions that have begun after the last one that has ended.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let end = self.last_ended + 1;
        let mut open: Vec<i64> =
            self.open.values().map(|open| open.number).filter(|open| *open < end).collect();
        open.sort_unstable();
        (self.kind == Kind::Numbered).then_some(Snapshot { end, open })
    }

    /// The number of a transaction, as a reply to a settle or to `find_head` has it.
    pub(crate) fn told(&self, number: i64) -> Option<i64> {
        (self.kind == Kind::Numbered).then_some(number)
    }

    pub(crate) fn horizon(&self) -> Horizon {
        Horizon { last_id: self.last_id(), snapshot: self.snapshot(), ..Horizon::default() }
    }

    /// Pending ids of these partitions, in their order.
    pub(crate) fn pending(&self, partitions: PartitionSet) -> impl Iterator<Item = RecordId> {
        let pending = move |row: &Row| !row.held && partitions.contains(partition(row.key));
        self.rows.iter().filter(move |(_, row)| pending(row)).map(|(id, _)| *id)
    }

    /// Pending ids partition by partition, each from its head.
    pub(crate) fn heads(&self, partitions: PartitionSet) -> Vec<RecordId> {
        partitions.iter().flat_map(|partition| self.pending([partition].into_iter().collect())).collect()
    }

    /// A pending record that must be in memory when a fetch brings the record `id`: it has the same key and a
    /// lower id, and was committed before `id` was scheduled or together with it.
    pub(crate) fn missing_cause(&self, id: RecordId, known: impl Fn(RecordId) -> bool) -> Option<RecordId> {
        let later = &self.rows[&id];
        let before = |row: &Row| row.committed < later.scheduled || row.committed == later.committed;
        let is_cause = |row: &Row| row.key == later.key && !row.held && before(row);
        self.rows.range(..id).find(|(id, row)| is_cause(row) && !known(**id)).map(|(id, _)| *id)
    }
}
