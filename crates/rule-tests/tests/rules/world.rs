//! One instance with the fetches and settles of the delivery wing, on a small model of a database. Each fetch and
//! each settle takes one step at a time, so that any event can come between two statements.

#![allow(clippy::unwrap_used, reason = "a property fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use keylane::{
    RecordId,
    partition::PartitionSet,
    rules::{
        horizon::{Head, Horizon, Server},
        reading::{Reading, Readings, Statement},
        witnesses::Witness,
    },
};
use proptest::{prelude::*, test_runner::TestCaseResult};

use super::table::{KEYS, Kind, PARTITIONS, SETTLER, Table, partition};

/// The fetches that one list of ids ahead serves at most.
const AHEAD: usize = 4;

/// The next step of a fetch. A statement that does not read in one moment takes several steps.
enum Next {
    Statement,
    /// Draws a number as a witness; the last id was read before.
    Draw(RecordId),
    /// Draws a number for a search of the head; the last id was read before.
    Number(PartitionSet, RecordId),
    /// Reads the first record of these partitions, and the snapshot.
    Head(PartitionSet, RecordId, i64),
    /// Reads the last id, and then the ids of a scan.
    LastId(Scan),
    ScanById(Scan, RecordId),
    /// Sees ids ahead of the scan.
    Ahead(RecordId, Vec<RecordId>, Horizon),
    /// Reads late records, or the last id after the snapshot.
    Rest(RecordId, Vec<RecordId>, Horizon),
    Heads,
    TakeIn(Vec<RecordId>),
}

/// The ids of a scan, and how many of those that it sees it lists.
struct Scan {
    within: Vec<(RecordId, RecordId)>,
    list: usize,
}

struct Fetch {
    reading: Reading,
    owned: PartitionSet,
    grants: [u32; PARTITIONS],
    skip: BTreeSet<RecordId>,
    /// Keys with records that were requeued or returned after the fetch began.
    stale: BTreeSet<usize>,
    kept: bool,
    next: Next,
    /// The ids that the scan under way is restricted to.
    ahead: Option<Arc<[RecordId]>>,
}

impl Fetch {
    /// Begins the next statement of the reading, which may read the last id first.
    fn begin_statement(&mut self, last_id: RecordId, limit: usize) -> Next {
        match self.reading.next() {
            Statement::DrawNumber => Next::Draw(last_id),
            Statement::FindBystanders(_) => {
                self.reading.bystanders_found(None);
                Next::Statement
            }
            Statement::FindHead(of) => Next::Number(of, last_id),
            Statement::ScanById { from, reach, lists, ahead, .. } => {
                self.ahead = ahead;
                let list = if lists { self.reading.listed(limit) } else { 0 };
                Next::LastId(Scan { within: vec![(from, from + reach - 1)], list })
            }
            Statement::ScanOthers { within, .. } => {
                self.ahead = None;
                Next::LastId(Scan { within, list: self.reading.listed(limit) })
            }
            Statement::FetchByPartition => Next::Heads,
        }
    }
}

struct Settle {
    ids: BTreeSet<RecordId>,
    hold: bool,
    /// The number of the transaction. Set when it is committed.
    number: Option<i64>,
}

/// The instance, and the table that others write as well.
pub(crate) struct World {
    pub(crate) table: Table,
    limit: usize,
    pub(crate) readings: Readings,
    pub(crate) owned: PartitionSet,
    /// The number of times that each partition was granted.
    grants: [u32; PARTITIONS],
    /// The partitions that were owned at the last fetch.
    fetched_of: PartitionSet,
    memory: BTreeMap<RecordId, usize>,
    requeued: bool,
    fetch: Option<Fetch>,
    settle: Option<Settle>,
}

pub(crate) fn all() -> PartitionSet {
    (0..PARTITIONS).map(partition).collect()
}

impl World {
    pub(crate) fn new(kind: Kind, limit: usize, stride: i64) -> Self {
        Self {
            table: Table::new(kind, stride),
            limit,
            readings: Readings::default(),
            owned: all(),
            grants: [0; PARTITIONS],
            fetched_of: PartitionSet::EMPTY,
            memory: BTreeMap::new(),
            requeued: false,
            fetch: None,
            settle: None,
        }
    }

    pub(crate) fn go_on_fetching(&mut self, kept: bool) -> TestCaseResult {
        match self.fetch.take() {
            None => self.begin_fetch(kept),
            Some(fetch) => return self.step(fetch),
        }
        Ok(())
    }

    fn begin_fetch(&mut self, kept: bool) {
        let missed = if std::mem::take(&mut self.requeued) { all() } else { PartitionSet::EMPTY };
        let idle = |key: &usize| !self.memory.values().any(|of| partition(*of) == partition(*key));
        let idle: PartitionSet = (0..PARTITIONS).filter(idle).map(partition).collect();
        let owned = if kept { self.owned.without(all().without(idle)) } else { self.owned };
        let reading = self.readings.begin(owned, missed, false);
        if owned.is_empty() {
            return;
        }
        let next = if kept { Next::Heads } else { Next::Statement };
        if !kept {
            self.fetched_of = owned;
        }
        let skip = self.memory.keys().copied().collect();
        let stale = BTreeSet::new();
        self.fetch =
            Some(Fetch { reading, owned, grants: self.grants, skip, stale, kept, next, ahead: None });
    }

    /// Takes the next step of a fetch, which sees the table as it is now.
    fn step(&mut self, mut fetch: Fetch) -> TestCaseResult {
        let table = &mut self.table;
        let brings = |ids: &mut dyn Iterator<Item = RecordId>| -> Vec<RecordId> {
            ids.filter(|id| !fetch.skip.contains(id)).take(self.limit).collect()
        };
        fetch.next = match fetch.next {
            Next::Statement => fetch.begin_statement(table.last_id(), self.limit),
            Next::Draw(last_id) => {
                let number = table.whole();
                fetch.reading.drew(Some((Witness { last_id, number }, Server::default())));
                Next::Statement
            }
            Next::Number(of, last_id) => Next::Head(of, last_id, table.whole()),
            Next::Head(of, last_id, number) => {
                let horizon = Horizon { last_id, snapshot: table.snapshot(), ..Horizon::default() };
                let first = table.pending(of).find(|id| !fetch.skip.contains(id));
                let head = Head { first, horizon, number: table.told(number) };
                fetch.reading.head_found(&head);
                Next::Statement
            }
            Next::LastId(scan) => Next::ScanById(scan, table.last_id()),
            Next::ScanById(Scan { within, list }, last_id) => {
                let is_within =
                    |id: &RecordId| within.iter().any(|(first, last)| (first..=last).contains(&id));
                let mut found = brings(&mut table.pending(fetch.owned).filter(is_within));
                if let Some(ahead) = &fetch.ahead {
                    found.retain(|id| ahead.contains(id));
                }
                let visible = table.rows.keys().copied().filter(is_within).take(list).collect();
                let horizon = Horizon { last_id, snapshot: table.snapshot(), visible, ..Horizon::default() };
                Next::Ahead(within[0].0, found, horizon)
            }
            Next::Ahead(from, found, mut horizon) => {
                if table.kind == Kind::Late && fetch.ahead.is_none() && found.len() >= self.limit {
                    let behind = |id: &RecordId| *id >= from && !fetch.skip.contains(id);
                    horizon.ahead =
                        table.pending(fetch.owned).filter(behind).take(AHEAD * self.limit).collect();
                }
                Next::Rest(from, found, horizon)
            }
            Next::Rest(from, mut found, mut horizon) => {
                match table.kind {
                    Kind::Numbered => horizon.last_id = table.last_id(),
                    Kind::Late if fetch.ahead.is_none() => {
                        let late = brings(&mut table.pending(fetch.owned).take_while(|id| *id < from));
                        let all_late = late.len() < self.limit;
                        found.extend(late);
                        found.sort_unstable();
                        found.truncate(self.limit);
                        horizon.ahead.retain(|id| all_late && !found.contains(id));
                    }
                    Kind::Late | Kind::Serial => {}
                }
                match fetch.reading.scanned(self.limit, (found.len(), found.last().copied()), &horizon) {
                    Some(_) => Next::TakeIn(found),
                    None => Next::Statement,
                }
            }
            Next::Heads => Next::TakeIn(brings(&mut table.heads(fetch.owned).into_iter())),
            Next::TakeIn(ref found) => return self.take_in(&fetch, found),
        };
        self.fetch = Some(fetch);
        Ok(())
    }

    fn take_in(&mut self, fetch: &Fetch, found: &[RecordId]) -> TestCaseResult {
        if !fetch.kept {
            self.readings.end(&fetch.reading);
        }
        let mut taken = Vec::new();
        for id in found {
            // A record that was deleted meanwhile belongs to a partition that was lost.
            let key = self.table.rows.get(id).map(|row| row.key);
            let number = |key: usize| key % PARTITIONS;
            let still = |key: &usize| fetch.grants[number(*key)] == self.grants[number(*key)];
            let mine = |key: &usize| self.owned.contains(partition(*key)) && still(key);
            match key.filter(|key| mine(key) && !fetch.stale.contains(key)) {
                Some(key) => taken.push((*id, key)),
                None => self.requeued = true,
            }
        }
        for (id, key) in &taken {
            prop_assert_eq!(self.memory.insert(*id, *key), None, "{} was in memory", id);
        }
        for (id, _) in taken {
            let cause = self.table.missing_cause(id, |cause| self.memory.contains_key(&cause));
            prop_assert_eq!(cause, None, "it was passed over, but {} was brought", id);
        }
        Ok(())
    }

    pub(crate) fn go_on_settling(&mut self, most: usize, hold: bool) {
        let Some(mut settle) = self.settle.take() else {
            let ids: BTreeSet<RecordId> = self.memory.keys().take(most).copied().collect();
            let begins = !ids.is_empty();
            self.readings.settle_begins();
            self.settle = begins.then_some(Settle { ids, hold, number: None });
            return;
        };
        if let Some(number) = settle.number {
            self.readings.settle_ends(self.table.told(number).map(|number| (number, Server::default())));
            self.memory.retain(|id, _| !settle.ids.contains(id));
            return;
        }
        // A settle begins in one step and commits in another.
        if let Some(number) = self.table.commit(SETTLER) {
            for id in &settle.ids {
                match settle.hold {
                    true => self.table.rows.get_mut(id).unwrap().held = true,
                    false => drop(self.table.rows.remove(id)),
                }
            }
            settle.number = Some(number);
        } else {
            self.table.begin(SETTLER);
        }
        self.settle = Some(settle);
    }

    pub(crate) fn requeue(&mut self, of: impl Fn(usize) -> bool) {
        let settling = |id: &RecordId| self.settle.as_ref().is_some_and(|settle| settle.ids.contains(id));
        self.memory.retain(|id, key| !of(*key) || settling(id));
        self.requeued = true;
        self.fetch.iter_mut().for_each(|fetch| fetch.stale.extend((0..KEYS).filter(|key| of(*key))));
    }

    fn is_settling(&self, of: impl Fn(usize) -> bool) -> bool {
        self.settle.iter().flat_map(|settle| &settle.ids).any(|id| of(self.memory[id]))
    }

    pub(crate) fn return_held(&mut self, key: usize) {
        let mut held: Vec<_> =
            self.table.rows.values_mut().filter(|row| row.key == key && row.held).collect();
        if held.is_empty()
            || self.settle.iter().flat_map(|settle| &settle.ids).any(|id| self.memory[id] == key)
        {
            return;
        }
        held.iter_mut().for_each(|row| row.held = false);
        if self.owned.contains(partition(key)) {
            self.requeue(|of| of == key);
        }
    }

    /// Loses a partition, unless an outcome of it is being written.
    pub(crate) fn lose(&mut self, number: usize) {
        let of = |key: usize| partition(key) == partition(number);
        if !self.is_settling(of) {
            self.requeue(of);
            self.owned.remove(partition(number));
        }
    }

    pub(crate) fn gain(&mut self, number: usize) {
        if !self.owned.contains(partition(number)) {
            self.owned.insert(partition(number));
            self.grants[number] += 1;
            // Only the generation tells that the partition was away between two fetches.
            self.requeued |= self.fetched_of.contains(partition(number));
        }
    }

    /// The fetch under way fails, and all knowledge of the database is discarded.
    pub(crate) fn fail(&mut self) {
        if self.fetch.take().is_some() {
            self.readings.discard();
        }
    }

    /// The first id of the next scan, if it is known.
    pub(crate) fn next_scan(&self) -> Option<RecordId> {
        let mut reading = self.readings.clone().begin(self.owned, PartitionSet::EMPTY, false);
        loop {
            match reading.next() {
                Statement::DrawNumber => reading.drew(None),
                Statement::FindBystanders(_) => reading.bystanders_found(None),
                Statement::ScanById { from, .. } => return Some(from),
                Statement::ScanOthers { within, .. } => return Some(within[0].0),
                Statement::FindHead(_) | Statement::FetchByPartition => return None,
            }
        }
    }

    /// Ends the settle and the fetch under way.
    pub(crate) fn finish(&mut self) -> TestCaseResult {
        while self.settle.is_some() {
            if self.table.kind == Kind::Serial {
                self.table.commit_writers();
            }
            self.go_on_settling(0, false);
        }
        while self.fetch.is_some() {
            self.go_on_fetching(false)?;
        }
        Ok(())
    }
}
