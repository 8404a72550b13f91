//! The end: all work is done, and nothing is left.

use std::sync::Arc;

use super::{
    Judge,
    line::{Line, violation},
    records::{Record, State},
    writers::{Fate, Scheduled, Written},
};
use crate::{Invariant, Status, Violation};

impl Judge {
    /// Judges that all committed records have an end.
    pub(super) fn all_done(&mut self, line: &Line) -> Result<(), Violation> {
        self.ended = true;
        self.count(Invariant::NoLoss);
        let mut events: Vec<&Scheduled> = self.writers.events.values().collect();
        events.sort_by_key(|event| event.line.position);
        for event in events {
            let Some(tx) = self.writers.transactions.get(&event.tx) else { continue };
            let committed = matches!(tx.fate, Fate::Committed(_)) || tx.seen;
            let written = match event.written {
                Written::Yes => true,
                Written::Unknown => !event.records.is_empty() && self.has_rows(),
                Written::No(_) => false,
            };
            if !committed || !written || tx.fate == Fate::RolledBack {
                continue;
            }
            let stored = match event.handlers.len() {
                0 => !event.records.is_empty() || !self.has_rows(),
                handlers => event.records.len() >= handlers,
            };
            let left = event.records.iter().filter_map(|(_, id)| self.records.get(*id));
            let left = left.min_by_key(|record| (!self.is_left(record), record.id));
            let lost = left.filter(|record| self.is_left(record));
            if stored && lost.is_none() {
                continue;
            }
            let text = match lost {
                Some(record) => format!("record {} has no end", record.number()),
                None => "an event was committed and has no record for each of its handlers".to_owned(),
            };
            let shown = [Some(&event.line), tx.line.as_ref(), Some(line)].into_iter();
            let shown = shown.chain(lost.into_iter().flat_map(Record::lines));
            return Err(violation(Invariant::NoLoss, text, shown));
        }
        let orphans = self.records.iter().filter(|record| !self.writers.events.contains_key(&record.event));
        let orphan = orphans.filter(|record| self.is_left(record)).min_by_key(|record| record.id);
        if let Some(record) = orphan {
            let text = format!("record {} has no end", record.number());
            return Err(violation(Invariant::NoLoss, text, record.lines().into_iter().chain([Some(line)])));
        }
        Ok(())
    }

    /// Whether a record should have an end and has none.
    fn is_left(&self, record: &Record) -> bool {
        let failed = match self.has_rows() {
            true => record.status == Status::Failed,
            false => record.end == Some(crate::End::Permanent),
        };
        let done = !self.has_rows() && record.state == State::Done;
        !(done || failed && self.expect.may_fail)
    }

    /// Judges that each completion of a transactional handler has one effect.
    pub(super) fn judge_effects(&mut self) -> Result<(), Violation> {
        if self.transactional.is_empty() || !self.ended {
            return Ok(());
        }
        if !self.has_rows() {
            let done =
                self.records.iter().filter(|record| record.state == State::Done && !record.by_fallback);
            let done = done.filter(|record| self.transactional.contains(&record.lane.1));
            self.completed = done.map(|record| ((record.event, record.lane.1), 1)).collect();
        }
        for ((event, handler), lines) in std::mem::take(&mut self.effects) {
            let name = self.names.of(&handler);
            let completed = self.completed.remove(&(event, name)).is_some_and(|count| count > 0);
            let apart = self.apart.get(&(event, handler)).copied().unwrap_or_default();
            self.count(Invariant::Effects);
            if lines.len() > usize::from(completed) + apart {
                let text = match completed {
                    true => format!("{} effects of one completion", lines.len()),
                    false => "an effect without a completion".to_owned(),
                };
                return Err(violation(Invariant::Effects, text, lines.iter().map(Some)));
            }
        }
        let missing = self.completed.iter().filter(|(_, count)| **count > 0).map(|(of, _)| *of).min();
        if let Some((event, handler)) = missing {
            let text =
                format!("no effect of {} for event {event}, which is completed", self.names.text(handler));
            return Err(violation(Invariant::Effects, text, []));
        }
        Ok(())
    }

    /// Judges that no member and no owner is left.
    pub(super) fn judge_rest(&mut self) -> Result<(), Violation> {
        if !self.expect.all_stopped {
            return Ok(());
        }
        self.count(Invariant::Quiet);
        let alive = |name: &u32| !self.calls.crashes.contains_key(name);
        if let Some(name) = self.members.live().map(|(name, _)| name).find(alive) {
            let text = format!("{} has not left", self.names.text(name));
            return Err(violation(Invariant::Quiet, text, [self.members.end(name)]));
        }
        let held = |claim: &super::ownership::Claim| claim.released.is_none() && alive(&claim.instance);
        if let Some((partition, claim)) = self.ownership.iter().find(|(_, claim)| held(claim)) {
            let text = format!("partition {partition} still has an owner");
            return Err(violation(Invariant::Quiet, text, [Some(&claim.line)]));
        }
        let mut calls: Vec<&Line> = self.calls.open.values().map(|call| &call.line).collect();
        calls.sort_by_key(|line| line.position);
        if let Some(line) = calls.first() {
            return Err(violation(Invariant::Quiet, "a call has not ended", [Some(&Arc::clone(line))]));
        }
        Ok(())
    }
}
