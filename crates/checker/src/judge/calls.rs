//! Calls of handlers: the right to call, and the ends of calls.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    Judge,
    line::{Line, violation},
    names::Name,
    ownership::Standing,
    records::{Lane, State},
};
use crate::{CallKind, Called, End, Invariant, Violation, What};

/// A call that has not ended.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) line: Line,
    pub(super) instance: Name,
    kind: CallKind,
    /// Whether the instance had lost the partition when the call began.
    former: bool,
    /// The records, in their order; none for a record that is excused and not judged.
    records: Vec<Option<i64>>,
}

impl OpenCall {
    fn called(&self) -> &[Called] {
        match &self.line.event.what {
            What::CallBegan { records, .. } => records,
            _ => &[],
        }
    }

    /// The lowest generation of the records. Calls of former owners have lower ones.
    fn generation(&self) -> i64 {
        self.called().iter().map(|called| called.generation).min().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) open: HashMap<u64, OpenCall>,
    /// Calls that a crash has ended.
    crashed: HashSet<u64>,
    /// Crashed instances, each with the line of its crash.
    pub(super) crashes: HashMap<Name, Line>,
    leases: HashMap<Name, (u64, Line)>,
    /// The instance that each process was last. A process that has joined again has left its earlier instance
    /// behind, whose row stays until it is evicted.
    processes: HashMap<String, Name>,
    left_behind: HashSet<Name>,
    /// The time at which an instance had a lease again after a lapse. What the instance knew before is lost.
    lapses: HashMap<Name, u64>,
}

impl Judge {
    pub(super) fn lease(&mut self, instance: &str, until: u64, line: &Line) -> Result<(), Violation> {
        let instance = self.names.of(instance);
        self.judge_crashed(instance, line)?;
        let before = self.calls.leases.insert(instance, (until, Arc::clone(line)));
        if before.is_some_and(|(before, _)| before < line.event.at) {
            self.calls.lapses.insert(instance, line.event.at);
        }
        let earlier = self.calls.processes.insert(line.event.process.clone(), instance);
        self.calls.left_behind.extend(earlier.filter(|earlier| *earlier != instance));
        Ok(())
    }

    /// Whether the instance has had a lease and its process has not joined again, or the history has no leases.
    /// An instance without a lease may have crashed before its name was known.
    pub(super) fn may_have_a_lease(&self, instance: Name) -> bool {
        let Calls { leases, left_behind, .. } = &self.calls;
        leases.is_empty() || leases.contains_key(&instance) && !left_behind.contains(&instance)
    }

    /// Whether the lease of the instance has lapsed since this time.
    pub(super) fn has_lapsed(&self, instance: Name, since: u64) -> bool {
        self.calls.lapses.get(&instance).is_some_and(|at| *at > since)
    }

    pub(super) fn call_began(&mut self, line: &Line) -> Result<(), Violation> {
        let What::CallBegan { call, instance, kind, records } = &line.event.what else { return Ok(()) };
        let instance = self.names.of(instance);
        self.judge_crashed(instance, line)?;
        self.judge_lease(instance, line)?;
        match kind {
            CallKind::Fallback => self.reach("fallback"),
            CallKind::Batch | CallKind::TransactionalBatch if records.len() > 1 => self.reach("batch"),
            _ => {}
        }
        let (mut found, mut former) = (Vec::with_capacity(records.len()), false);
        for called in records {
            let id = self.judge_called(called, instance, line)?;
            let standing = self.standing(called, instance, line)?;
            let lane = self.lane_of(called);
            self.judge_overlap((*call, lane), (instance, standing), called, line)?;
            former |= standing == Standing::Former;
            match (id, standing) {
                (Some(id), Standing::Owner) => {
                    self.judge_start(id, called, (*call, instance, *kind), line)?;
                    found.push(Some(id));
                }
                _ => found.push(None),
            }
            self.lanes.open_call(lane, *call);
        }
        let open = OpenCall { line: Arc::clone(line), instance, kind: *kind, records: found, former };
        self.calls.open.insert(*call, open);
        Ok(())
    }

    fn judge_crashed(&mut self, instance: Name, line: &Line) -> Result<(), Violation> {
        self.count(Invariant::Crash);
        let Some(crash) = self.calls.crashes.get(&instance) else { return Ok(()) };
        let text = format!("{} has crashed and goes on", self.names.text(instance));
        Err(violation(Invariant::Crash, text, [Some(crash), Some(line)]))
    }

    /// A call begins within the lease, or was decided before a pause that reaches past its end.
    fn judge_lease(&mut self, instance: Name, line: &Line) -> Result<(), Violation> {
        let Some((until, lease)) = self.calls.leases.get(&instance) else { return Ok(()) };
        let (good, lease) =
            (line.event.at < *until || self.faults.excuse(instance, *until), Arc::clone(lease));
        self.count(Invariant::Lease);
        if good {
            return Ok(());
        }
        Err(violation(
            Invariant::Lease,
            "a call begins after the lease of its instance",
            [Some(&lease), Some(line)],
        ))
    }

    /// The called record, if it has no end.
    fn judge_called(
        &mut self,
        called: &Called,
        instance: Name,
        line: &Line,
    ) -> Result<Option<i64>, Violation> {
        self.count(Invariant::NoGhost);
        if let Some(id) = self.find(called) {
            let lane = self.lane_of(called);
            let Some(record) = self.records.get_mut(id) else { return Ok(None) };
            let misplaced = record.partition.is_some_and(|partition| partition != called.partition);
            if record.lane != lane || misplaced {
                let text = format!("{} is called with a lane that is not its own", called.id);
                let shown = [record.stored.as_ref(), Some(line)];
                return Err(violation(Invariant::NoGhost, text, shown));
            }
            record.called_id = Some(called.id);
            let event = record.event;
            if let Some(scheduled) = self.writers.events.get(&event)
                && let Some(tx) = self.writers.transactions.get_mut(&scheduled.tx)
            {
                tx.seen = true;
            }
            return Ok(Some(id));
        }
        if self.forgets.knows(&called.event) {
            self.reach("call of a forgotten record");
            return Ok(None);
        }
        if self.has_rows() && (self.gone.contains(called.id) || self.kept.contains(called.id)) {
            return self.judge_finished(called, instance, line).map(|()| None);
        }
        if !self.expect.writers && !self.has_rows() {
            return Ok(None);
        }
        let why = self.writers.ghost(&called.event).unwrap_or("has no such record");
        let text = format!("event {} is called, but {why}", called.event);
        Err(violation(
            Invariant::NoGhost,
            text,
            self.writers.lines(&called.event).into_iter().chain([Some(line)]),
        ))
    }

    /// A record that has ended is not called again by its owner.
    fn judge_finished(&mut self, called: &Called, instance: Name, line: &Line) -> Result<(), Violation> {
        self.count(Invariant::Replays);
        if (self.expect.ownership || self.expect.claimed)
            && self.standing(called, instance, line)? == Standing::Former
        {
            return Ok(());
        }
        if self.faults.excuse_of_all(line.event.at) {
            return Ok(());
        }
        let text = format!("record {} has its end and is called again", called.id);
        Err(violation(Invariant::Replays, text, [Some(line)]))
    }

    /// A lane has one call at a time, except calls of former owners.
    fn judge_overlap(
        &mut self,
        (call, lane): (u64, Lane),
        (instance, standing): (Name, Standing),
        called: &Called,
        line: &Line,
    ) -> Result<(), Violation> {
        let others = self.lanes.get(lane).map(|lane| lane.calls.clone()).unwrap_or_default();
        for other in others.into_iter().filter(|other| *other != call) {
            let Some(open) = self.calls.open.get(&other) else { continue };
            let shown = [Some(&open.line), Some(line)];
            if open.instance == instance {
                let text = "two calls of a lane at once in one instance";
                return Err(violation(Invariant::StopOnFailure, text, shown));
            }
            let older = if open.generation() <= called.generation { open.instance } else { instance };
            // A call of a former owner was excused when it began, and a stranger does not know that the new server has
            // lost the last renewal of its claim.
            let excused = open.former || standing == Standing::Former || self.forgets.is_stranger(older);
            let excused = excused || self.was_kept_from_handing_over(older);
            if !excused && !self.faults.excuse(older, open.line.event.at) {
                let text = format!("calls of a lane overlap, and {} had no fault", self.names.text(older));
                return Err(violation(Invariant::Lease, text, shown));
            }
            self.reach("overlap");
        }
        self.count(Invariant::Lease);
        Ok(())
    }

    /// Whether the instance was evicted shortly after a fault, which may have kept it from releasing
    /// partitions. Its calls go on until it learns of the eviction.
    pub(super) fn was_kept_from_handing_over(&self, instance: Name) -> bool {
        let end = self.members.end(instance).filter(|_| !self.members.is_live(instance));
        end.is_some_and(|end| self.faults.delay(instance, end.event.at.saturating_sub(self.expect.handover)))
    }

    pub(super) fn call_ended(&mut self, call: u64, ends: &[End], line: &Line) -> Result<(), Violation> {
        let Some(open) = self.calls.open.remove(&call) else {
            if self.calls.crashed.contains(&call) {
                return Err(violation(
                    Invariant::Crash,
                    "a call ends after the crash of its instance",
                    [Some(line)],
                ));
            }
            return Err(violation(
                Invariant::NoGhost,
                format!("call {call} ends and never began"),
                [Some(line)],
            ));
        };
        let mut stopped = HashSet::new();
        for (place, called) in open.called().iter().enumerate() {
            let lane = self.lane_of(called);
            self.lanes.close_call(lane, call);
            let Some(id) = open.records.get(place).copied().flatten() else { continue };
            let end = ends.get(place).copied().unwrap_or(End::Dropped);
            // After a failure in its lane, a record's result does not count.
            let end = if stopped.contains(&lane) { End::Dropped } else { end };
            if end != End::Ok && !self.passes_failures.contains(&lane.1) {
                stopped.insert(lane);
            }
            let end = if self.still_owns(called, open.instance) { end } else { End::Dropped };
            self.record_ended(id, end, (call, &open), line);
        }
        Ok(())
    }

    fn record_ended(&mut self, id: i64, end: End, (call, open): (u64, &OpenCall), line: &Line) {
        let Some(record) = self.records.get_mut(id).filter(|record| record.call == Some(call)) else {
            return;
        };
        record.ended = Some(Arc::clone(line));
        record.end = Some(end);
        match end {
            End::Ok => {
                if !record.succeeded.contains(&open.instance) {
                    record.succeeded.push(open.instance);
                }
                record.by_fallback = open.kind == CallKind::Fallback;
                return self.done(id);
            }
            End::Failed | End::Permanent | End::Panicked | End::TimedOut => {
                record.state = State::Failed;
                record.failures += u32::from(open.kind != CallKind::Fallback);
            }
            End::Unavailable => {
                record.state = State::Failed;
                record.unavailable += 1;
            }
            End::Refused => {
                record.state = State::Interrupted;
                record.failures += 1;
            }
            End::Dropped => record.state = State::Interrupted,
        }
        let lane = record.lane;
        self.watch_lane(lane);
    }

    /// Ends the calls of a crashed instance.
    pub(super) fn crash(&mut self, instance: &str, line: &Line) {
        let instance = self.names.of(instance);
        self.calls.crashes.insert(instance, Arc::clone(line));
        let mut calls: Vec<u64> =
            self.calls.open.iter().filter(|(_, call)| call.instance == instance).map(|(id, _)| *id).collect();
        calls.sort_unstable();
        for call in calls {
            let Some(open) = self.calls.open.remove(&call) else { continue };
            self.reach("crash in a call");
            self.calls.crashed.insert(call);
            for (place, called) in open.called().iter().enumerate() {
                let lane = self.lane_of(called);
                self.lanes.close_call(lane, call);
                let id = open.records.get(place).copied().flatten();
                let record = id.and_then(|id| self.records.get_mut(id));
                if let Some(record) = record.filter(|record| record.call == Some(call)) {
                    record.state = State::Interrupted;
                    record.crashes += 1;
                }
                self.watch_lane(lane);
            }
        }
    }
}
