//! The waits that must be short once the faults are over.

use std::collections::{BTreeSet, HashMap};

use super::{
    Judge,
    line::{Line, violation},
    records::{Lane, State},
    writers::Fate,
};
use crate::{End, Invariant, Status, Violation};

#[derive(Debug, Default)]
pub(super) struct Waits {
    /// The time at which the faults were over.
    pub(super) since: Option<u64>,
    now: u64,
    /// Lanes by the time at which their head must have been called.
    timers: BTreeSet<(u64, Lane)>,
    /// The head of each lane, its last end, and its time.
    heads: HashMap<Lane, (i64, Option<u64>, u64)>,
}

impl Judge {
    /// The faults are over.
    pub(super) fn settle_down(&mut self, at: u64) {
        self.waits.since = Some(at);
        self.waits.now = at;
        for lane in self.lanes.sorted() {
            self.watch_lane(lane);
        }
    }

    /// The head of a lane that must be called, the position of its last end, and the longest wait.
    fn head(&self, lane: Lane) -> Option<(i64, Option<u64>, u64)> {
        let bound = self.expect.head_waits?;
        let state = self.lanes.get(lane)?;
        for id in &state.waiting {
            let record = self.records.get(*id)?;
            let ended = record.ended.as_ref().map(|line| line.position);
            if record.status == Status::Failed {
                if self.passes_failed.contains(&lane.1) {
                    continue;
                }
                return None;
            }
            let unsure = !self.has_rows() && !self.is_committed(&record.event);
            if unsure {
                continue;
            }
            return match (record.state, record.end) {
                (State::Running, _) => None,
                (State::New | State::Redo | State::Interrupted, _) => Some((*id, ended, bound)),
                (State::Failed, Some(End::Failed | End::Panicked | End::TimedOut)) => {
                    let backoff = self.expect.backoff.get(self.names.text(lane.1))?;
                    let nth = (record.attempt as usize).saturating_sub(1);
                    let pause = backoff.most.get(nth).or(backoff.most.last())?;
                    Some((*id, ended, bound.saturating_add(*pause)))
                }
                _ => None,
            };
        }
        None
    }

    fn is_committed(&self, event: &uuid::Uuid) -> bool {
        let tx = self.writers.events.get(event).and_then(|event| self.writers.transactions.get(&event.tx));
        tx.is_some_and(|tx| matches!(tx.fate, Fate::Committed(_)))
    }

    /// A lane has changed and may have another head.
    pub(super) fn watch_lane(&mut self, lane: Lane) {
        if self.waits.since.is_none() || self.expect.head_waits.is_none() {
            return;
        }
        let head = self.head(lane);
        let known = self.waits.heads.get(&lane).copied();
        if head.map(|(id, ended, _)| (id, ended)) == known.map(|(id, ended, _)| (id, ended)) {
            return;
        }
        if let Some((_, _, due)) = known {
            self.waits.timers.remove(&(due, lane));
            self.waits.heads.remove(&lane);
        }
        if let Some((id, ended, bound)) = head {
            let due = self.waits.now.saturating_add(bound);
            self.waits.timers.insert((due, lane));
            self.waits.heads.insert(lane, (id, ended, due));
            self.count(Invariant::Starvation);
        }
    }

    pub(super) fn judge_waits(&mut self, now: u64, line: &Line) -> Result<(), Violation> {
        self.waits.now = self.waits.now.max(now);
        let Some((due, lane)) = self.waits.timers.first().copied().filter(|(due, _)| *due < now) else {
            return Ok(());
        };
        let record = self.waits.heads.get(&lane).and_then(|(id, _, _)| self.records.get(*id));
        let late = now - due;
        let text = format!(
            "record {} of key {:?} for {} is the head of its lane and still not called, {late} ns too late",
            record.map_or(0, |record| record.number()),
            self.names.text(lane.0),
            self.names.text(lane.1),
        );
        let shown = record.into_iter().flat_map(|record| record.lines()).chain([Some(line)]);
        Err(violation(Invariant::Starvation, text, shown))
    }
}
