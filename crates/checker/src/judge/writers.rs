//! Transactions of producers: the scheduled events, and the fates of commits.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use uuid::Uuid;

use super::{Judge, forgets::Undo, line::Line, names::Name, records::Record};
use crate::{Invariant, Order, Violation, What, judge::line::violation};

/// The events of rolled back transactions that are kept, so that a ghost can be shown with its history.
const ROLLED_BACK_KEPT: usize = 4096;

/// The fate of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Open,
    Committing,
    /// The position in the history where the commit returned.
    Committed(u64),
    Unknown,
    RolledBack,
}

#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) fate: Fate,
    pub(super) line: Option<Line>,
    pub(super) events: Vec<Uuid>,
    /// The number of events that are not dropped yet.
    pub(super) left: usize,
    /// Whether a part of the transaction was seen in the database or in a call.
    pub(super) seen: bool,
}

/// Whether a call that scheduled has written.
#[derive(Clone, Debug)]
pub(super) enum Written {
    Yes,
    Unknown,
    /// The line that says that the call has not written.
    No(Line),
}

/// An event that was scheduled.
#[derive(Debug)]
pub(super) struct Scheduled {
    pub(super) line: Line,
    pub(super) tx: u64,
    pub(super) key: Name,
    pub(super) handlers: Vec<Name>,
    pub(super) delayed: bool,
    pub(super) written: Written,
    /// The records of the event, by handler.
    pub(super) records: Vec<(Name, i64)>,
    /// The number of records without an end.
    pub(super) open: usize,
}

#[derive(Debug, Default)]
pub(super) struct Writers {
    pub(super) calls: HashMap<u64, Uuid>,
    pub(super) events: HashMap<Uuid, Scheduled>,
    pub(super) transactions: HashMap<u64, Transaction>,
    pub(super) cancelled: HashMap<Uuid, Line>,
    rolled_back: VecDeque<u64>,
}

impl Writers {
    pub(super) fn cancel(&mut self, event: Uuid, line: &Line) {
        if self.events.contains_key(&event) {
            self.cancelled.insert(event, Arc::clone(line));
        }
    }

    /// Whether a record of the first event must come before one of the second, apart from their ids.
    pub(super) fn precedes(&self, first: &Uuid, second: &Uuid) -> bool {
        let (Some(first), Some(second)) = (self.events.get(first), self.events.get(second)) else {
            return false;
        };
        let fate = self.transactions.get(&first.tx).map(|tx| tx.fate);
        first.tx == second.tx && first.line.position < second.line.position
            || matches!(fate, Some(Fate::Committed(at)) if at < second.line.position)
    }

    /// The lines that show the origin of an event.
    pub(super) fn lines(&self, event: &Uuid) -> [Option<&Line>; 3] {
        let Some(scheduled) = self.events.get(event) else { return [None; 3] };
        let not_written = match &scheduled.written {
            Written::No(line) => Some(line),
            _ => None,
        };
        let commit = self.transactions.get(&scheduled.tx).and_then(|tx| tx.line.as_ref());
        [Some(&scheduled.line), commit, not_written]
    }

    /// Why no record of this event may exist.
    pub(super) fn ghost(&self, event: &Uuid) -> Option<&'static str> {
        let Some(scheduled) = self.events.get(event) else { return Some("was scheduled by nobody") };
        if matches!(scheduled.written, Written::No(_)) {
            return Some("was refused or undone");
        }
        match self.transactions.get(&scheduled.tx).map(|tx| tx.fate) {
            Some(Fate::RolledBack) => Some("was rolled back"),
            Some(Fate::Open) | None => Some("is not being committed yet"),
            Some(Fate::Committing | Fate::Committed(_) | Fate::Unknown) => None,
        }
    }

    /// Drops an event of a transaction.
    pub(super) fn forget(&mut self, event: &Uuid) -> Option<(Scheduled, Option<Transaction>)> {
        let scheduled = self.events.remove(event)?;
        let left = self.transactions.get_mut(&scheduled.tx).map(|tx| {
            tx.left = tx.left.saturating_sub(1);
            tx.left
        });
        let tx = (left == Some(0)).then(|| self.transactions.remove(&scheduled.tx)).flatten();
        Some((scheduled, tx))
    }

    fn roll_back(&mut self, tx: u64) {
        self.rolled_back.push_back(tx);
        if self.rolled_back.len() > ROLLED_BACK_KEPT
            && let Some(oldest) = self.rolled_back.pop_front()
        {
            for event in self.transactions.remove(&oldest).map(|tx| tx.events).unwrap_or_default() {
                self.events.remove(&event);
            }
        }
    }
}

impl Judge {
    /// Whether the first record must come before the second, if its position in the lane is lower.
    pub(super) fn precedes(&self, first: &Record, second: &Record) -> bool {
        self.expect.order == Order::Strict && self.has_rows()
            || self.writers.precedes(&first.event, &second.event)
    }

    pub(super) fn of_writer(&mut self, line: &Line) -> Result<(), Violation> {
        self.judge_dedup(line)?;
        match &line.event.what {
            What::Scheduling { .. } => self.scheduling(line),
            What::Scheduled { call } => drop(self.writers.calls.remove(call)),
            What::Cancelled { event, .. } => self.writers.cancel(*event, line),
            What::ScheduleFailed { call } | What::Duplicate { call } => {
                self.not_written(*call, &Written::No(Arc::clone(line)))
            }
            What::ScheduleUnknown { call } => self.not_written(*call, &Written::Unknown),
            What::Undone { events, .. } => {
                self.reach("savepoint undone");
                for event in events {
                    if let Some(scheduled) = self.writers.events.get_mut(event) {
                        scheduled.written = Written::No(Arc::clone(line));
                    }
                }
            }
            What::Committing { tx } => {
                self.fate(*tx, Fate::Committing, line);
                if !self.has_rows() {
                    self.assume_stored(*tx);
                }
            }
            What::Committed { tx } => {
                self.fate(*tx, Fate::Committed(line.position), line);
                self.retire_all(*tx);
            }
            What::CommitUnknown { tx } => {
                let seen = self.writers.transactions.get(tx).is_some_and(|tx| tx.seen);
                self.reach(if seen { "unknown commit that happened" } else { "unknown commit" });
                self.fate(*tx, Fate::Unknown, line);
                self.retire_all(*tx);
            }
            What::RolledBack { tx } => return self.rolled_back(*tx, line),
            _ => {}
        }
        Ok(())
    }

    fn scheduling(&mut self, line: &Line) {
        let What::Scheduling { call, tx, event, key, handlers, delayed } = &line.event.what else { return };
        let (key, handlers) =
            (self.names.of(key), handlers.iter().map(|handler| self.names.of(handler)).collect());
        self.writers.calls.insert(*call, *event);
        let scheduled = Scheduled {
            line: Arc::clone(line),
            tx: *tx,
            key,
            handlers,
            delayed: *delayed,
            written: Written::Yes,
            records: Vec::new(),
            open: 0,
        };
        self.writers.events.insert(*event, scheduled);
        let tx = self.writers.transactions.entry(*tx).or_insert_with(|| Transaction {
            fate: Fate::Open,
            line: None,
            events: Vec::new(),
            left: 0,
            seen: false,
        });
        tx.events.push(*event);
        tx.left += 1;
    }

    fn not_written(&mut self, call: u64, written: &Written) {
        let event = self.writers.calls.remove(&call);
        if let Some(scheduled) = event.and_then(|event| self.writers.events.get_mut(&event)) {
            scheduled.written = written.clone();
        }
    }

    fn fate(&mut self, tx: u64, fate: Fate, line: &Line) {
        if let Some(tx) = self.writers.transactions.get_mut(&tx) {
            tx.fate = fate;
            tx.line = Some(Arc::clone(line));
        }
    }

    /// Drops the events of a transaction that have ended.
    fn retire_all(&mut self, tx: u64) {
        let events = self.writers.transactions.get(&tx).map(|tx| tx.events.clone()).unwrap_or_default();
        for event in events {
            self.retire(&event);
        }
    }

    /// Drops an event whose records have all ended.
    pub(super) fn retire(&mut self, event: &Uuid) {
        let Some(scheduled) = self.writers.events.get(event).filter(|_| self.has_rows()) else { return };
        let stored = match scheduled.handlers.len() {
            0 => !scheduled.records.is_empty(),
            handlers => scheduled.records.len() >= handlers,
        };
        let fate = self.writers.transactions.get(&scheduled.tx).map(|tx| tx.fate);
        let over = matches!(fate, Some(Fate::Committed(_) | Fate::Unknown));
        let refused = matches!(scheduled.written, Written::No(_));
        if scheduled.open > 0 || !over || !(stored || refused) {
            return;
        }
        self.writers.cancelled.remove(event);
        if let Some((scheduled, tx)) = self.writers.forget(event) {
            self.forgets.note(|| Undo::Retired(Box::new((*event, scheduled, tx))));
        }
    }

    fn rolled_back(&mut self, tx: u64, line: &Line) -> Result<(), Violation> {
        self.reach("rollback");
        self.fate(tx, Fate::RolledBack, line);
        let Some(transaction) = self.writers.transactions.get(&tx) else { return Ok(()) };
        let (seen, events) = (transaction.seen, transaction.events.clone());
        self.count(Invariant::NoGhost);
        if seen {
            let shown = events.iter().filter_map(|event| self.writers.events.get(event));
            let shown = shown.flat_map(|event| {
                let rows = event.records.iter().filter_map(|(_, id)| self.records.get(*id));
                let rows = rows.flat_map(|record| [record.stored.as_ref(), record.began.as_ref()]);
                rows.chain([Some(&event.line)])
            });
            let text = format!("transaction {tx} was rolled back, but was seen");
            return Err(violation(Invariant::NoGhost, text, shown.chain([Some(line)])));
        }
        for event in &events {
            self.drop_assumed(event);
        }
        self.writers.roll_back(tx);
        Ok(())
    }
}
