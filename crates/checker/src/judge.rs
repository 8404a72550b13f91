//! Judges events, one by one, by the invariants.
//!
//! The judge keeps open things: transactions, records without an end, calls, the owners of partitions,
//! faults. Of a thing that has ended it keeps only the id, so that memory does not grow with the history.
//! Each open thing keeps its lines, and a violation shows exactly these lines.

mod calls;
mod claims;
mod dedup;
mod end;
mod faults;
mod forgets;
mod ids;
mod lanes;
mod line;
mod members;
mod names;
mod ownership;
mod records;
mod rows;
mod shares;
mod starts;
mod waits;
mod writers;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use self::{
    calls::Calls,
    claims::Claims,
    dedup::Dedup,
    faults::Faults,
    forgets::Forgets,
    ids::Ids,
    lanes::Lanes,
    line::{Line, Numbered, violation},
    members::Members,
    names::{Name, Names},
    ownership::Ownership,
    records::Records,
    shares::Shares,
    waits::Waits,
    writers::Writers,
};
use crate::{Event, Expect, Invariant, Report, Truth, Violation, What};

/// A judge of one history.
#[derive(Debug)]
pub struct Judge {
    expect: Expect,
    report: Report,
    judged: [u64; Invariant::ALL.len()],
    reached: BTreeMap<&'static str, u64>,
    names: Names,
    writers: Writers,
    dedup: Dedup,
    records: Records,
    lanes: Lanes,
    calls: Calls,
    ownership: Ownership,
    claims: Claims,
    members: Members,
    faults: Faults,
    waits: Waits,
    shares: Shares,
    forgets: Forgets,
    /// Completed records that are kept, and deleted ones.
    kept: Ids,
    gone: Ids,
    highest_id: i64,
    /// The number of completions and effects of transactional handlers, by event and handler.
    completed: HashMap<(uuid::Uuid, Name), u32>,
    effects: BTreeMap<(uuid::Uuid, String), Vec<Line>>,
    /// The number of effects that may exist without a completion, by event and handler.
    apart: BTreeMap<(uuid::Uuid, String), usize>,
    /// Handlers whose effects are judged, and those whose lanes go on.
    transactional: BTreeSet<Name>,
    passes_failures: BTreeSet<Name>,
    passes_failed: BTreeSet<Name>,
    ended: bool,
}

impl Judge {
    /// A judge before the first event.
    #[must_use]
    pub fn new(expect: Expect) -> Self {
        let mut names = Names::default();
        let mut of = |set: &BTreeSet<String>| set.iter().map(|name| names.of(name)).collect();
        let transactional = of(&expect.transactional);
        let (passes_failures, passes_failed) = (of(&expect.passes_failures), of(&expect.passes_failed));
        Self {
            report: Report::default(),
            judged: [0; Invariant::ALL.len()],
            reached: BTreeMap::new(),
            writers: Writers::default(),
            dedup: Dedup::default(),
            records: Records::default(),
            lanes: Lanes::default(),
            calls: Calls::default(),
            ownership: Ownership::default(),
            claims: Claims::default(),
            members: Members::default(),
            faults: Faults::new(&expect),
            waits: Waits::default(),
            shares: Shares::default(),
            forgets: Forgets::new(expect.forgets),
            kept: Ids::default(),
            gone: Ids::default(),
            highest_id: i64::MIN,
            completed: HashMap::new(),
            effects: BTreeMap::new(),
            apart: BTreeMap::new(),
            transactional,
            passes_failures,
            passes_failed,
            ended: false,
            names,
            expect,
        }
    }

    /// Judges the next event. After a violation, the judge must not be used again.
    ///
    /// # Errors
    /// The violated invariant.
    pub fn take(&mut self, event: &Event) -> Result<(), Violation> {
        self.report.events += 1;
        let line = Arc::new(Numbered { position: self.report.events, event: event.clone() });
        self.forgets.trim(event.at);
        self.judge_shares(event.at, &line)?;
        self.judge_waits(event.at, &line)?;
        self.dispatch(&line)
    }

    fn dispatch(&mut self, line: &Line) -> Result<(), Violation> {
        match &line.event.what {
            What::Scheduling { .. }
            | What::Scheduled { .. }
            | What::ScheduleFailed { .. }
            | What::ScheduleUnknown { .. }
            | What::Committing { .. }
            | What::Committed { .. }
            | What::CommitUnknown { .. }
            | What::RolledBack { .. }
            | What::Keyed { .. }
            | What::Duplicate { .. }
            | What::Cancelled { .. }
            | What::Undone { .. } => self.of_writer(line),
            What::CallBegan { .. } => self.call_began(line),
            What::CallEnded { call, ends } => self.call_ended(*call, ends, line),
            What::Stored { .. } => self.stored(line),
            What::Changed { .. } => self.changed(line),
            What::Claimed { .. }
            | What::Unclaimed { .. }
            | What::Joined { .. }
            | What::Draining { .. }
            | What::Left { .. }
            | What::Evicted { .. } => self.of_cluster(line),
            What::RecordClaimed { .. } | What::RecordUnclaimed { .. } => self.of_claims(line),
            What::Retried { id } | What::Discarded { id } | What::Replaced { id } => {
                self.reach("repair");
                self.person(*id, line);
                Ok(())
            }
            What::Effect { event, handler } => {
                self.effects.entry((*event, handler.clone())).or_default().push(Arc::clone(line));
                Ok(())
            }
            What::EffectApart { event, handler } => {
                self.reach("effect apart");
                *self.apart.entry((*event, handler.clone())).or_default() += 1;
                Ok(())
            }
            What::LeaseUntil { instance, until } => self.lease(instance, *until, line),
            What::Sampled { .. } | What::Remains { .. } | What::Logged { .. } => self.sampled(line),
            What::FaultBegan { .. } | What::FaultEnded { .. } => self.of_faults(line),
            What::FailedOver { back_to } => {
                self.failed_over(*back_to, line);
                Ok(())
            }
            What::Settling => {
                self.settle_down(line.event.at);
                Ok(())
            }
            What::Finished => self.all_done(line),
            What::Saw { what } => {
                *self.report.reached.entry(what.clone()).or_default() += 1;
                Ok(())
            }
        }
    }

    /// Judges the invariants that need the end.
    ///
    /// # Errors
    /// The violated invariant.
    pub fn finish(mut self) -> Result<Report, Violation> {
        self.judge_effects()?;
        self.judge_rest()?;
        for (invariant, count) in Invariant::ALL.into_iter().zip(self.judged).filter(|(_, count)| *count > 0)
        {
            self.report.judged.insert(invariant, count);
        }
        for (what, count) in self.reached {
            *self.report.reached.entry(what.to_owned()).or_default() += count;
        }
        if !self.expect.sometimes.is_empty() {
            *self.report.judged.entry(Invariant::Sometimes).or_default() += 1;
            self.report.require(self.expect.sometimes.iter().map(String::as_str))?;
        }
        Ok(self.report)
    }

    /// Counts one judgement of an invariant.
    fn count(&mut self, invariant: Invariant) {
        self.judged[usize::from(invariant.number()) - 1] += 1;
    }

    /// Counts a state that should occur in some run.
    fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    /// Whether the history has the events of rows.
    fn has_rows(&self) -> bool {
        self.expect.truth == Truth::Rows
    }

    /// Judges samples and log lines.
    fn sampled(&mut self, line: &Line) -> Result<(), Violation> {
        match &line.event.what {
            What::Sampled { name, value } => {
                let Some(bound) = self.expect.bounds.get(name).copied() else { return Ok(()) };
                self.count(Invariant::Bounds);
                if *value > bound {
                    let text = format!("{value} {name}, where {bound} are allowed");
                    return Err(violation(Invariant::Bounds, text, [Some(line)]));
                }
            }
            What::Remains { name, value } => {
                self.count(Invariant::Quiet);
                if *value > 0 {
                    return Err(violation(
                        Invariant::Quiet,
                        format!("{value} {name} are left"),
                        [Some(line)],
                    ));
                }
            }
            What::Logged { text } => {
                let Some(canary) = &self.expect.canary else { return Ok(()) };
                let told = text.contains(canary.as_str());
                self.count(Invariant::Secrets);
                if told {
                    return Err(violation(Invariant::Secrets, "a log line contains a payload", [Some(line)]));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
