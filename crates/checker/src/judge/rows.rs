//! Rows: their commits and their changes.

use std::sync::Arc;

use super::{
    Judge,
    forgets::Undo,
    line::{Line, violation},
    names::Name,
    records::{Record, State},
};
use crate::{Invariant, Status, Violation, What};

impl Judge {
    pub(super) fn stored(&mut self, line: &Line) -> Result<(), Violation> {
        let What::Stored { id, event, handler, key, partition, status } = &line.event.what else {
            return Ok(());
        };
        let lane = self.lane(event, key, handler);
        let of = (self.names.of(key), lane.1);
        self.count(Invariant::NoGhost);
        if let Some(why) = self.stray(*id, event, of, *partition) {
            let text = format!("record {id} is stored, but {why}");
            return Err(violation(
                Invariant::NoGhost,
                text,
                self.writers.lines(event).into_iter().chain([Some(line)]),
            ));
        }
        let mut record = Record::new(*id, *event, lane, *status);
        record.partition = Some(*partition);
        record.stored = Some(Arc::clone(line));
        if let Some(scheduled) = self.writers.events.get(event) {
            record.delayed |= scheduled.delayed;
            record.later |= scheduled.delayed;
            if self.lanes.is_released_since(record.lane, scheduled.line.event.at) {
                *self.reached.entry("new record beside a release").or_default() += 1;
            }
            if let Some(tx) = self.writers.transactions.get_mut(&scheduled.tx) {
                tx.seen = true;
            }
        }
        self.judge_ids(&record, line)?;
        if *id < self.highest_id {
            self.reach("late commit with a lower id");
        }
        self.highest_id = self.highest_id.max(*id);
        self.forgets.note(|| Undo::Stored(*id));
        self.admit(record);
        Ok(())
    }

    /// Why this row must not exist.
    fn stray(
        &mut self,
        id: i64,
        event: &uuid::Uuid,
        lane: (Name, Name),
        partition: u16,
    ) -> Option<&'static str> {
        let known = *self.lanes.partitions.entry(lane.0).or_insert(partition);
        if known != partition {
            return Some("its key is in another partition");
        }
        if self.records.get(id).is_some() || self.gone.contains(id) || self.kept.contains(id) {
            return Some("another has its id");
        }
        let known = self.writers.events.contains_key(event) || self.expect.writers;
        if let Some(why) = self.writers.ghost(event).filter(|_| known) {
            return Some(why);
        }
        let scheduled = self.writers.events.get(event)?;
        if scheduled.key != lane.0 {
            return Some("was scheduled with another key");
        }
        if !scheduled.handlers.is_empty() && !scheduled.handlers.contains(&lane.1) {
            return Some("was not scheduled for this handler");
        }
        scheduled
            .records
            .iter()
            .any(|(handler, _)| *handler == lane.1)
            .then_some("has a record for this handler")
    }

    /// Judges that the ids of a lane follow the order: a record that must come after another has a higher id.
    fn judge_ids(&mut self, record: &Record, line: &Line) -> Result<(), Violation> {
        self.count(Invariant::FirstAttempts);
        let Some(lane) = self.lanes.get(record.lane) else { return Ok(()) };
        for id in lane.open.range(record.id..) {
            let Some(other) = self.records.get(*id) else { continue };
            if self.writers.precedes(&other.event, &record.event) || self.expect.order == crate::Order::Strict
            {
                let text = format!("record {} comes after {} and has a lower id", record.id, other.id);
                let shown =
                    self.writers.lines(&other.event).into_iter().chain(self.writers.lines(&record.event));
                let shown = shown.chain([other.stored.as_ref(), Some(line)]);
                return Err(violation(Invariant::FirstAttempts, text, shown));
            }
        }
        Ok(())
    }

    pub(super) fn changed(&mut self, line: &Line) -> Result<(), Violation> {
        let What::Changed { id, status, attempts, by } = &line.event.what else { return Ok(()) };
        let by = by.as_deref().map(|by| self.names.of(by));
        let Some(record) = self.records.get(*id) else {
            return self.changed_after_end(*id, *status, by, line);
        };
        self.judge_writer(record, by, line)?;
        self.judge_counted(record, *status, *attempts, by, line)?;
        self.count(Invariant::Attempts);
        if by.is_some() {
            self.count(Invariant::Fence);
        }
        if record_ends(*status) {
            return self.ends(*id, *status, by, line);
        }
        self.judge_person(*id, *status, line)?;
        self.judge_overtaken(self.records.get(*id), *status, by, line)?;
        let passes_failed = &self.passes_failed;
        let Some(record) = self.records.get_mut(*id) else { return Ok(()) };
        self.forgets.note(|| Undo::Changed { id: *id, before: Box::new(record.clone()) });
        if record.status == Status::Failed && *status == Status::Pending {
            (record.failures, record.unavailable, record.person) = (0, 0, None);
            record.state = State::Interrupted;
        }
        if record.status == Status::Held && *status == Status::Pending {
            self.lanes.release(record.lane, line.event.at);
        }
        record.exempt |= *status == Status::Failed && passes_failed.contains(&record.lane.1);
        (record.status, record.attempts) = (*status, *attempts);
        record.changed = Some(Arc::clone(line));
        let lane = record.lane;
        match status {
            Status::Held => self.reach("held"),
            Status::Failed => self.reach("failed"),
            _ => {}
        }
        self.watch_lane(lane);
        Ok(())
    }

    /// Judges the writer of an outcome: a member that owns the partition, on the server on which it has
    /// joined.
    fn judge_writer(&self, record: &Record, by: Option<Name>, line: &Line) -> Result<(), Violation> {
        if let (Some(by), true) = (by, self.expect.claimed) {
            return self.judge_claimed_writer(record.id, by, line);
        }
        let (Some(by), true) = (by, self.expect.ownership) else { return Ok(()) };
        let shown = |more: Option<&Line>| {
            violation(
                Invariant::Fence,
                format!("{} writes about record {} without a right to", self.names.text(by), record.id),
                [record.stored.as_ref(), record.began.as_ref(), more, Some(line)],
            )
        };
        if self.forgets.is_stranger(by) {
            return Err(shown(None));
        }
        if !self.members.is_live(by) {
            return Err(shown(self.members.end(by)));
        }
        let Some(partition) = record.partition else { return Ok(()) };
        let claim = self.ownership.get(partition);
        if claim.is_none_or(|claim| claim.released.is_some() || claim.instance != by) {
            return Err(shown(claim.map(|claim| claim.released.as_ref().unwrap_or(&claim.line))));
        }
        Ok(())
    }

    /// Judges the count of attempts: it is the number of the handler's failures.
    fn judge_counted(
        &self,
        record: &Record,
        status: Status,
        attempts: u32,
        by: Option<Name>,
        line: &Line,
    ) -> Result<(), Violation> {
        // A record that crashes its process is counted once more when it fails.
        let crashed = u32::from(status == Status::Failed && record.crashes > 0);
        let most = (self.failures(record) + crashed).max(if record.exempt { record.attempts } else { 0 });
        let reset = by.is_none() && record.status == Status::Failed;
        let fewer = attempts < record.attempts && !reset && !record_ends(status);
        if attempts <= most.max(record.attempts) && !fewer {
            return Ok(());
        }
        let text = format!(
            "record {} counts {attempts} attempts, and its handler has failed {most} times",
            record.id
        );
        let shown = record.lines().into_iter().chain([Some(line)]);
        Err(violation(Invariant::Attempts, text, shown))
    }

    /// Judges that a record which its lane has passed over is not tried again.
    fn judge_overtaken(
        &self,
        record: Option<&Record>,
        status: Status,
        by: Option<Name>,
        line: &Line,
    ) -> Result<(), Violation> {
        let tried_again = status == Status::Delayed && by.is_some();
        let Some(record) = record.filter(|record| tried_again && record.state == State::Failed) else {
            return Ok(());
        };
        let Some(overtaken) = &record.overtaken else { return Ok(()) };
        let text =
            format!("record {} will be tried again, and a later one of its lane was called", record.id);
        Err(violation(
            Invariant::StopOnFailure,
            text,
            [record.began.as_ref(), record.ended.as_ref(), Some(overtaken), Some(line)],
        ))
    }

    /// Judges that only a person releases a failed record.
    fn judge_person(&mut self, id: i64, status: Status, line: &Line) -> Result<(), Violation> {
        let Some(record) = self.records.get(id).filter(|record| record.status == Status::Failed) else {
            return Ok(());
        };
        let (good, changed) = (status == Status::Failed || record.person.is_some(), record.changed.clone());
        self.count(Invariant::AtLeastOnce);
        if good {
            return Ok(());
        }
        let text = format!("record {id} had failed for good and goes on by itself");
        Err(violation(Invariant::AtLeastOnce, text, [changed.as_ref(), Some(line)]))
    }

    /// Judges the end of a record: it has a cause, and keeps the order of its lane.
    fn ends(&mut self, id: i64, status: Status, by: Option<Name>, line: &Line) -> Result<(), Violation> {
        let Some(record) = self.records.get(id) else { return Ok(()) };
        let delivered = match by {
            Some(by) => record.succeeded.contains(&by),
            None => false,
        };
        let cancelled = record.state == State::New && self.writers.cancelled.contains_key(&record.event);
        let taken_back = by.is_none() && status == Status::Gone && (cancelled || record.person.is_some());
        if !delivered && !taken_back {
            let text = format!("record {id} has its end without a call of its writer that succeeded");
            let shown = record.lines().into_iter().chain([Some(line)]);
            return Err(violation(Invariant::AtLeastOnce, text, shown));
        }
        if delivered {
            self.judge_outcomes(record, line)?;
        }
        self.count(Invariant::AtLeastOnce);
        self.count(Invariant::Outcomes);
        self.close(id, status, delivered);
        Ok(())
    }

    fn judge_outcomes(&self, record: &Record, line: &Line) -> Result<(), Violation> {
        let Some(lane) = self.lanes.get(record.lane) else { return Ok(()) };
        for id in lane.open.range(..record.id) {
            let Some(first) = self.records.get(*id) else { continue };
            let excused = first.exempt || record.exempt || first.later || record.later;
            if excused || self.is_passed(first) || !self.precedes(first, record) {
                continue;
            }
            let text = format!("record {} has its end before {} of its lane", record.id, first.id);
            let shown = first.lines().into_iter().chain(self.writers.lines(&first.event));
            let shown = shown.chain(self.writers.lines(&record.event)).chain([Some(line)]);
            return Err(violation(Invariant::Outcomes, text, shown));
        }
        Ok(())
    }

    /// Drops a record except its id.
    fn close(&mut self, id: i64, status: Status, delivered: bool) {
        let Some(record) = self.records.remove(id) else { return };
        let ids = if status == Status::Completed { &mut self.kept } else { &mut self.gone };
        ids.insert(id);
        if delivered && !record.by_fallback && self.transactional.contains(&record.lane.1) {
            *self.completed.entry((record.event, record.lane.1)).or_default() += 1;
        }
        self.leave_lane(&record);
        let event = record.event;
        if let Some(scheduled) = self.writers.events.get_mut(&event) {
            scheduled.open = scheduled.open.saturating_sub(1);
        }
        self.forgets.note(|| Undo::Closed(Box::new(record)));
        self.retire(&event);
    }

    fn changed_after_end(
        &mut self,
        id: i64,
        status: Status,
        by: Option<Name>,
        line: &Line,
    ) -> Result<(), Violation> {
        self.count(Invariant::AtLeastOnce);
        if self.kept.contains(id) && status == Status::Gone && by.is_none() {
            self.kept.remove(id);
            self.gone.insert(id);
            self.forgets.note(|| Undo::Purged(id));
            return Ok(());
        }
        let (invariant, why) = match self.kept.contains(id) || self.gone.contains(id) {
            true => (Invariant::AtLeastOnce, "has its end and changes again"),
            false => (Invariant::NoGhost, "was never stored and changes"),
        };
        Err(violation(invariant, format!("record {id} {why}"), [Some(line)]))
    }
}

/// Whether this status is an end.
fn record_ends(status: Status) -> bool {
    matches!(status, Status::Completed | Status::Gone)
}
