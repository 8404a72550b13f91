//! The effect of a failover: the changes of the last moments are undone, newest first.

use std::collections::{HashSet, VecDeque};

use uuid::Uuid;

use super::{
    Judge, claims,
    line::Line,
    members::Member,
    names::Name,
    ownership::Claim,
    records::{Record, State},
    writers::{Scheduled, Transaction},
};

/// A change of the database's content, with the state before it.
#[derive(Debug)]
pub(super) enum Undo {
    Stored(i64),
    Changed { id: i64, before: Box<Record> },
    Closed(Box<Record>),
    Purged(i64),
    Retired(Box<(Uuid, Scheduled, Option<Transaction>)>),
    Claim { partition: u16, before: Option<Claim> },
    RecordClaim { id: i64, before: Option<claims::Claim> },
    Member { instance: Name, before: Option<Member> },
}

#[derive(Debug, Default)]
pub(super) struct Forgets {
    window: Option<u64>,
    now: u64,
    changes: VecDeque<(u64, Undo)>,
    events: HashSet<Uuid>,
    /// Instances that have joined on an earlier server: what they know is out of date.
    strangers: HashSet<Name>,
}

impl Forgets {
    pub(super) fn new(window: Option<u64>) -> Self {
        Self { window, ..Self::default() }
    }

    /// Keeps how to undo a change.
    pub(super) fn note(&mut self, undo: impl FnOnce() -> Undo) {
        if self.window.is_some() {
            self.changes.push_back((self.now, undo()));
        }
    }

    /// Drops undo entries that are older than any failover reaches.
    pub(super) fn trim(&mut self, now: u64) {
        self.now = now;
        let oldest = now.saturating_sub(self.window.unwrap_or_default());
        while self.changes.front().is_some_and(|(at, _)| *at < oldest) {
            self.changes.pop_front();
        }
    }

    /// Whether the instance has joined on an earlier server.
    pub(super) fn is_stranger(&self, instance: Name) -> bool {
        self.strangers.contains(&instance)
    }

    /// Whether a failover has lost this event.
    pub(super) fn knows(&self, event: &Uuid) -> bool {
        self.events.contains(event)
    }
}

impl Judge {
    pub(super) fn failed_over(&mut self, back_to: u64, line: &Line) {
        self.reach("failover");
        self.faults.strike_all(line.event.at);
        self.shares_disturbed();
        self.dedup.failed_over();
        self.forgets.strangers.extend(self.members.all().chain(self.claims.instances()));
        while let Some((_, undo)) = self.forgets.changes.pop_back_if(|(at, _)| *at > back_to) {
            self.reach("forgotten commit");
            self.take_back(undo);
        }
        self.records.of_no_generation();
        self.count_unowned(line.event.at);
    }

    fn take_back(&mut self, undo: Undo) {
        match undo {
            Undo::Stored(id) => self.unstore(id),
            Undo::Changed { id, before } => {
                let Some(record) = self.records.get_mut(id) else { return };
                (record.status, record.attempts, record.changed) =
                    (before.status, before.attempts, before.changed);
                // A repair by a person had reset the count.
                record.failures = record.failures.max(before.failures);
                record.unavailable = record.unavailable.max(before.unavailable);
                record.turned_back = true;
                let lane = record.lane;
                self.watch_lane(lane);
            }
            Undo::Closed(record) => self.reopen(*record),
            Undo::Purged(id) => {
                self.gone.remove(id);
                self.kept.insert(id);
            }
            Undo::Retired(retired) => {
                let (event, scheduled, tx) = *retired;
                let id = scheduled.tx;
                self.writers.events.insert(event, scheduled);
                if let Some(tx) = tx {
                    self.writers.transactions.insert(id, tx);
                }
                if let Some(tx) = self.writers.transactions.get_mut(&id) {
                    tx.left += 1;
                }
            }
            Undo::Claim { partition, before } => self.ownership.restore(partition, before),
            Undo::RecordClaim { id, before } => self.claims.restore(id, before),
            Undo::Member { instance, before } => self.members.restore(instance, before),
        }
    }

    /// Undoes the commit of a row.
    fn unstore(&mut self, id: i64) {
        let Some(record) = self.records.remove(id) else { return };
        self.leave_lane(&record);
        self.forgets.events.insert(record.event);
        if let Some(event) = self.writers.events.get_mut(&record.event) {
            event.records.retain(|(_, of)| *of != id);
            event.open = event.open.saturating_sub(1);
            if event.records.is_empty() {
                self.writers.forget(&record.event);
            }
        }
    }

    /// Undoes the end of a record, which is delivered once more.
    fn reopen(&mut self, mut record: Record) {
        self.gone.remove(record.id);
        self.kept.remove(record.id);
        if let Some(count) = self.completed.get_mut(&(record.event, record.lane.1)) {
            *count = count.saturating_sub(1);
        }
        record.state = State::Done;
        if let Some(event) = self.writers.events.get_mut(&record.event) {
            event.open += 1;
        }
        self.enter_lane(&record);
        self.records.insert(record);
    }
}
