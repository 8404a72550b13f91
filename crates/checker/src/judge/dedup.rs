//! Dedup keys: an event whose key exists is not stored, and a duplicate needs another event with the key.
//! Cancelled events: they are deleted with the commit, and their keys are free.

use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use super::{
    Judge,
    line::{Line, violation},
    writers::Fate,
};
use crate::{Invariant, Violation, What};

/// An event that has inserted a key.
#[derive(Debug)]
struct Holder {
    event: Uuid,
    tx: u64,
    line: Line,
    /// The transaction that has cancelled the event.
    freed_by: Option<u64>,
    /// Whether it is unknown that the call has written, or which of its changes a failover has lost.
    unsure: bool,
}

/// The holders of keys.
#[derive(Debug, Default)]
pub(super) struct Dedup {
    /// Calls that have not returned: event, transaction and key.
    calls: HashMap<u64, (Uuid, u64, String)>,
    holders: HashMap<String, Vec<Holder>>,
    /// The fates of the transactions of holders and cancels.
    fates: HashMap<u64, Fate>,
    /// The events that each open transaction cancels.
    cancelling: HashMap<u64, Vec<Uuid>>,
}

impl Dedup {
    fn fate(&self, tx: u64) -> Fate {
        self.fates.get(&tx).copied().unwrap_or(Fate::Open)
    }

    /// Whether this holder keeps other events of the transaction from noting its key: surely, or possibly.
    fn holds(&self, holder: &Holder, tx: u64) -> (bool, bool) {
        let own = holder.tx == tx;
        let (noted, perhaps) = match self.fate(holder.tx) {
            Fate::Committed(_) => (true, true),
            Fate::Committing | Fate::Unknown => (false, true),
            Fate::Open => (own, own),
            Fate::RolledBack => (false, false),
        };
        let (freed, free) = match holder.freed_by {
            None => (false, false),
            Some(by) if by == tx => (true, true),
            Some(by) => match self.fate(by) {
                Fate::Committed(_) => (true, true),
                Fate::Committing | Fate::Unknown => (false, true),
                // Other transactions wait for its end.
                Fate::Open | Fate::RolledBack => (false, false),
            },
        };
        (noted && !free && !holder.unsure, perhaps && !freed || holder.unsure)
    }

    /// It is unknown which keys and cancels a new server has.
    pub(super) fn failed_over(&mut self) {
        self.holders.values_mut().flatten().for_each(|holder| holder.unsure = true);
        self.cancelling.clear();
    }
}

impl Judge {
    /// Judges the events of producers about keys and cancels.
    pub(super) fn judge_dedup(&mut self, line: &Line) -> Result<(), Violation> {
        match &line.event.what {
            What::Keyed { call, dedup_key } => {
                if let Some(event) = self.writers.calls.get(call).copied()
                    && let Some(tx) = self.writers.events.get(&event).map(|event| event.tx)
                {
                    self.dedup.calls.insert(*call, (event, tx, dedup_key.clone()));
                }
            }
            What::Scheduled { call } => return self.noted(*call, false, line),
            What::ScheduleUnknown { call } => return self.noted(*call, true, line),
            What::ScheduleFailed { call } => drop(self.dedup.calls.remove(call)),
            What::Duplicate { call } => return self.judge_duplicate(*call, line),
            What::Undone { events, .. } => {
                let undone = |holder: &Holder| events.contains(&holder.event);
                self.dedup.holders.values_mut().for_each(|holders| holders.retain(|holder| !undone(holder)));
            }
            What::Cancelled { tx, event } => {
                self.dedup.cancelling.entry(*tx).or_default().push(*event);
                let cancelled = |holder: &&mut Holder| holder.event == *event;
                let holders = self.dedup.holders.values_mut().flatten().filter(cancelled);
                holders.for_each(|holder| holder.freed_by = Some(*tx));
            }
            What::Committing { tx } => drop(self.dedup.fates.insert(*tx, Fate::Committing)),
            What::CommitUnknown { tx } => drop(self.dedup.fates.insert(*tx, Fate::Unknown)),
            What::Committed { tx } => {
                self.dedup.fates.insert(*tx, Fate::Committed(line.position));
                return self.judge_cancelled(*tx, line);
            }
            What::RolledBack { tx } => {
                self.dedup.fates.insert(*tx, Fate::RolledBack);
                for event in self.dedup.cancelling.remove(tx).unwrap_or_default() {
                    self.writers.cancelled.remove(&event);
                }
                let freed = |holder: &&mut Holder| holder.freed_by == Some(*tx);
                let holders = self.dedup.holders.values_mut().flatten().filter(freed);
                holders.for_each(|holder| holder.freed_by = None);
            }
            _ => {}
        }
        Ok(())
    }

    /// Judges an inserted key: no other event may hold it.
    fn noted(&mut self, call: u64, unsure: bool, line: &Line) -> Result<(), Violation> {
        let Some((event, tx, dedup_key)) = self.dedup.calls.remove(&call) else { return Ok(()) };
        self.count(Invariant::NoGhost);
        let dedup = &self.dedup;
        let mut holders = dedup.holders.get(&dedup_key).into_iter().flatten();
        if let Some(holder) = holders.find(|holder| !unsure && dedup.holds(holder, tx).0) {
            let text = format!("events {} and {event} are both scheduled under {dedup_key:?}", holder.event);
            return Err(violation(Invariant::NoGhost, text, [Some(&holder.line), Some(line)]));
        }
        let holder = Holder { event, tx, line: Arc::clone(line), freed_by: None, unsure };
        self.dedup.holders.entry(dedup_key).or_default().push(holder);
        Ok(())
    }

    fn judge_duplicate(&mut self, call: u64, line: &Line) -> Result<(), Violation> {
        let Some((event, tx, dedup_key)) = self.dedup.calls.remove(&call) else { return Ok(()) };
        self.reach("duplicate");
        self.count(Invariant::NoLoss);
        let dedup = &self.dedup;
        let mut holders = dedup.holders.get(&dedup_key).into_iter().flatten();
        if holders.any(|holder| dedup.holds(holder, tx).1) {
            return Ok(());
        }
        let text =
            format!("event {event} is taken for a duplicate under {dedup_key:?}, and there is no other");
        let shown = dedup.holders.get(&dedup_key).into_iter().flatten().map(|holder| Some(&holder.line));
        Err(violation(Invariant::NoLoss, text, shown.chain([Some(line)])))
    }

    /// Judges cancelled events: they are deleted with the commit.
    fn judge_cancelled(&mut self, tx: u64, line: &Line) -> Result<(), Violation> {
        for event in self.dedup.cancelling.remove(&tx).unwrap_or_default() {
            self.reach("cancel");
            self.count(Invariant::NoGhost);
            let scheduled = self.writers.events.get(&event).filter(|event| event.open > 0);
            if let Some(scheduled) = scheduled {
                let left = scheduled.records.iter().filter_map(|(_, id)| self.records.get(*id));
                let shown = left.flat_map(|record| record.lines()).chain([Some(line)]);
                let text = format!("event {event} is cancelled, and has a record");
                return Err(violation(Invariant::NoGhost, text, shown));
            }
        }
        Ok(())
    }
}
