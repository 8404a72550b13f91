//! The start of a call by the owner: order, attempts, timing.

use std::sync::Arc;

use super::{
    Judge,
    line::{Line, violation},
    names::Name,
    records::{Record, State},
};
use crate::{CallKind, Called, End, Invariant, Repeats, Status, Violation};

impl Judge {
    pub(super) fn judge_start(
        &mut self,
        id: i64,
        called: &Called,
        (call, instance, kind): (u64, Name, CallKind),
        line: &Line,
    ) -> Result<(), Violation> {
        let Some(record) = self.records.get(id) else { return Ok(()) };
        let passed = self.judge_order(record, call, called.generation, line)?;
        self.judge_repeat(record, line)?;
        self.judge_attempt(record, called, (instance, kind), line)?;
        let timed = self.judge_timing(record, called.attempt, kind, line)?;
        let new = record.state == State::New;
        let again = matches!(record.state, State::Done | State::Redo);
        self.count(if new { Invariant::FirstAttempts } else { Invariant::StopOnFailure });
        if timed {
            self.count(Invariant::RetryTiming);
        }
        if again {
            self.count(Invariant::Replays);
        }
        self.count(Invariant::Attempts);
        for id in passed {
            if let Some(passed) = self.records.get_mut(id) {
                passed.overtaken = Some(Arc::clone(line));
            }
        }
        let Some(record) = self.records.get_mut(id) else { return Ok(()) };
        record.overtaken = None;
        let (retry, repeat) =
            (record.state == State::Failed, matches!(record.state, State::Done | State::Redo));
        let enters = record.delayed || record.state == State::Done;
        record.delayed = false;
        record.state = State::Running;
        (record.call, record.instance) = (Some(call), instance);
        (record.generation, record.attempt) = (called.generation, called.attempt);
        record.began = Some(Arc::clone(line));
        record.turned_back = false;
        let record = enters.then(|| record.clone());
        if let Some(record) = record {
            self.enter_lane(&record);
        }
        if retry {
            self.reach("retry");
        }
        if repeat {
            self.reach("repeat");
        }
        let lane = self.lane_of(called);
        self.watch_lane(lane);
        Ok(())
    }

    /// Judges that all earlier records have come first. Returns the records that have failed and must have
    /// failed for good, because the lane goes on.
    fn judge_order(
        &self,
        record: &Record,
        call: u64,
        generation: i64,
        line: &Line,
    ) -> Result<Vec<i64>, Violation> {
        if record.status == Status::Failed && !record.exempt {
            let text = format!("record {} has failed for good and is called again", record.number());
            return Err(violation(Invariant::StopOnFailure, text, [record.changed.as_ref(), Some(line)]));
        }
        let mut passed = Vec::new();
        let Some(lane) = self.lanes.get(record.lane) else { return Ok(passed) };
        for id in lane.waiting.range(..record.id) {
            let Some(first) = self.records.get(*id) else { continue };
            let same_call = first.state == State::Running && first.call == Some(call);
            if same_call || first.exempt || self.is_passed(first) || !self.precedes(first, record) {
                continue;
            }
            // A record that is due later has no place in the order, but two records never run at the same
            // time.
            if (first.later || record.later) && !self.is_under_way(first, generation) {
                continue;
            }
            if first.state == State::Failed && self.passes_failed.contains(&record.lane.1) {
                passed.push(*id);
                continue;
            }
            let (invariant, why) = match first.state {
                State::New => (Invariant::FirstAttempts, "was never called"),
                State::Running | State::Interrupted if first.generation != generation => {
                    (Invariant::Replays, "has no end of the owner before")
                }
                State::Running => (Invariant::StopOnFailure, "is being called"),
                State::Interrupted => (Invariant::StopOnFailure, "was cut off"),
                State::Failed => (Invariant::StopOnFailure, "has failed"),
                State::Done | State::Redo => (Invariant::Replays, "has no durable end"),
            };
            let text =
                format!("record {} is called while {} of its lane {why}", record.number(), first.number());
            let shown = first.lines().into_iter().chain(self.writers.lines(&first.event));
            let shown = shown.chain(self.writers.lines(&record.event)).chain([Some(line)]);
            return Err(violation(invariant, text, shown));
        }
        Ok(passed)
    }

    /// Whether the lane waits at this record, which is being called or has failed. A failure that is not
    /// durable is lost with the lease.
    fn is_under_way(&self, record: &Record, generation: i64) -> bool {
        let durable = record.changed.is_some() && matches!(record.status, Status::Delayed | Status::Failed);
        let ended = record.ended.as_ref().map_or(0, |ended| ended.event.at);
        match record.state {
            State::Running => record.generation == generation,
            State::Interrupted if record.end == Some(End::Refused) => durable,
            State::Failed => {
                durable || record.generation == generation && !self.has_lapsed(record.instance, ended)
            }
            _ => false,
        }
    }

    /// Whether the lane goes on without this record.
    pub(super) fn is_passed(&self, record: &Record) -> bool {
        let handler = record.lane.1;
        let failed = record.status == Status::Failed && self.passes_failed.contains(&handler);
        failed || self.passes_failures.contains(&handler) && self.has_failed(record)
    }

    /// Whether a call of the record has failed since the last repair by a person.
    fn has_failed(&self, record: &Record) -> bool {
        record.state == State::Failed || record.failures + record.unavailable > 0
    }

    /// Judges that a successful record is called again for a reason.
    fn judge_repeat(&self, record: &Record, line: &Line) -> Result<(), Violation> {
        if !matches!(record.state, State::Done | State::Redo)
            || self.expect.repeats == Repeats::Any
            || record.exempt
        {
            return Ok(());
        }
        let from = record.began.as_ref().map_or(0, |began| began.event.at);
        if self.faults.excuse(record.instance, from) {
            return Ok(());
        }
        let text = format!("record {} had succeeded and is called again without a fault", record.number());
        let shown = [record.began.as_ref(), record.ended.as_ref(), Some(line)];
        Err(violation(Invariant::Replays, text, shown))
    }

    fn judge_attempt(
        &self,
        record: &Record,
        called: &Called,
        (instance, kind): (Name, CallKind),
        line: &Line,
    ) -> Result<(), Violation> {
        let attempt = called.attempt;
        let failures = self.failures(record);
        if (1..=failures + 1).contains(&attempt)
            && !(attempt == record.attempt
                && kind != CallKind::Fallback
                && self.must_count(record, called, instance))
        {
            return Ok(());
        }
        let text = format!("record {} is in attempt {attempt} after {failures} failures", record.number());
        Err(violation(Invariant::Attempts, text, [record.began.as_ref(), record.ended.as_ref(), Some(line)]))
    }

    /// Whether the last call of a record has failed under the same owner, who has met no fault since.
    fn must_count(&self, record: &Record, called: &Called, instance: Name) -> bool {
        let counts = matches!(record.end, Some(End::Failed | End::Permanent | End::Panicked | End::TimedOut));
        let same = match self.expect.claimed {
            true => record.generation + 1 == called.generation && self.claims.is_handed_over(called.id),
            false => record.instance == instance && record.generation == called.generation,
        };
        let Some(ended) = record.ended.as_ref().map(|ended| ended.event.at) else { return false };
        self.has_rows()
            && counts
            && same
            && record.state == State::Failed
            && self.faults.is_calm_since(ended)
            && !self.has_lapsed(instance, ended)
    }

    /// The number of attempts that may have been counted.
    pub(super) fn failures(&self, record: &Record) -> u32 {
        let unavailable = if self.expect.unavailable_counts { record.unavailable } else { 0 };
        record.failures + unavailable
    }

    /// Judges that a retry comes after its backoff. Returns whether the call is a retry.
    fn judge_timing(
        &self,
        record: &Record,
        attempt: u32,
        kind: CallKind,
        line: &Line,
    ) -> Result<bool, Violation> {
        let again = matches!(record.end, Some(End::Failed | End::Panicked | End::TimedOut))
            && record.state == State::Failed
            && attempt == record.attempt + 1
            && !record.turned_back
            && kind != CallKind::Fallback;
        let backoff = self.expect.backoff.get(self.names.text(record.lane.1));
        let (Some(backoff), Some(ended), true) = (backoff, &record.ended, again) else { return Ok(false) };
        let nth = |pauses: &[u64]| pauses.get(record.attempt as usize - 1).or(pauses.last()).copied();
        let pause = line.event.at.saturating_sub(ended.event.at);
        let early = nth(&backoff.least).is_some_and(|least| pause < least);
        let calm = self.waits.since.is_some_and(|since| since <= ended.event.at);
        let late = calm && nth(&backoff.most).is_some_and(|most| pause > most);
        if early || late {
            let text = format!("record {} is tried again after {pause} ns", record.number());
            let shown = [record.began.as_ref(), Some(ended), Some(line)];
            return Err(violation(Invariant::RetryTiming, text, shown));
        }
        Ok(true)
    }
}
