//! Outcomes: from ended runs to durable writes, and what each means for its lane.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    flight::{Landed, LaneRun, Outcome, Report},
    intake::ERROR_PAUSE,
    lane::{Item, Run},
    noted::{fly_noted, tell, to_note},
    pipeline::{Pipeline, SettleDone, Task},
    stops::StopState,
    together::{Together, fly},
    transaction::Slot,
};
use crate::{
    ownership::Permit,
    record::{Change, Lane, OnFailure, RecordId, Settlement, StopReason},
    rules::{lifecycle::lane_goes_on, pacing},
    store::Settled,
    telemetry::Signal,
};

/// Records of one settle at most.
const SETTLE_LIMIT: usize = 5_000;
/// Added to the time of a retry, so that the database agrees that it has come.
const DUE_SLACK: Duration = Duration::from_millis(5);
/// Times of retries that are remembered; beyond them the poll interval decides.
const DUE_TIMES: usize = 1_000;

/// An outcome on its way to the database. The permit goes when it is durable.
pub(super) struct Pending {
    pub(super) settlement: Settlement,
    pub(super) lane: Lane,
    pub(super) permit: Option<Permit>,
    /// How long it was set aside, if the database has refused it before.
    pub(super) pause: Duration,
}

impl Pipeline {
    /// Starts what may run. Many short runs share a task and report together what ended together: a
    /// task and a report each would cost more than a short handler does.
    pub(super) fn start_runs(&mut self) {
        // Without a lease nothing would be tried, and all would be ready again at once.
        if !self.ownership.lease_holds() {
            return;
        }
        let mut runs = Vec::new();
        while self.lanes.plain_runs() < self.config.concurrency {
            let Some(run) = self.lanes.next_run(false) else { break };
            runs.push((run, None));
        }
        while let Some(slot) = self.guards.slot() {
            let Some(run) = self.lanes.next_run(true) else { break };
            runs.push((run, Some(slot)));
        }
        let mut noted = Vec::new();
        if self.suspects.are_some() {
            (noted, runs) = runs.into_iter().partition(|(run, _)| to_note(run).is_some());
        }
        self.start_noted(noted);
        let share = pacing::runs_per_task(self.mean_run);
        while !runs.is_empty() {
            let together = Together::new(runs.split_off(runs.len().saturating_sub(share)), self.done.clone());
            self.tasks.spawn(fly(together, Arc::clone(&self.around)));
        }
    }

    /// Starts runs whose call is noted before.
    fn start_noted(&mut self, runs: Vec<(Run, Option<Slot>)>) {
        for (run, slot) in runs {
            let Some(record) = to_note(&run) else { continue };
            let together = Together::new(vec![(run, slot)], self.done.clone());
            let store = (Arc::clone(&self.store), self.instance);
            self.tasks.spawn(fly_noted(together, record, store, Arc::clone(&self.around)));
        }
    }

    pub(super) fn task_ended(&mut self, ended: Result<(), tokio::task::JoinError>) {
        // The user's code is caught, so this is a fault of ours: not in a hot loop, at least. Its flights
        // have given their records back.
        if ended.is_err_and(|error| error.is_panic()) {
            self.not_before = Instant::now() + ERROR_PAUSE;
        }
    }

    pub(super) fn take_in_report(&mut self, report: Report) {
        if let Some(mean_run) = report.mean_run {
            self.mean_run = (self.mean_run + mean_run) / 2;
        }
        report.flights.into_iter().for_each(|landed| self.take_in_flight(landed));
    }

    fn take_in_flight(&mut self, Landed { lanes, transactional, goes_on }: Landed) {
        if !goes_on {
            self.lanes.end_run(transactional);
        }
        for LaneRun { lane, items, over, .. } in lanes {
            let mut untried = Vec::new();
            let mut lost = false;
            for (item, outcome) in items {
                match outcome {
                    Outcome::Write(change) => self.write_outcome(item, change, &lane),
                    Outcome::Written => {
                        let id = item.record.delivery.id;
                        self.lanes.forget(id);
                        self.suspects.end(id);
                        if item.stops_lane {
                            self.resume(&lane, id);
                            self.read_stops_of(&lane);
                        }
                    }
                    Outcome::Untried => untried.push(item),
                    Outcome::Gone => {
                        self.lanes.give_back(item.record.delivery.id);
                        lost = true;
                    }
                    Outcome::Aborted(error) => {
                        self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
                        self.not_before = Instant::now() + ERROR_PAUSE;
                        self.lanes.give_back(item.record.delivery.id);
                        lost = true;
                    }
                }
            }
            if over {
                self.take_back(&lane, untried, lost);
                self.lanes.end_lane(lane);
            }
        }
    }

    pub(super) fn write_outcome(&mut self, item: Item, change: Change, lane: &Lane) {
        let id = item.record.delivery.id;
        let failures = item.record.failures();
        if !lane_goes_on(&change) {
            let reason = match change {
                Change::Retry { .. } => StopReason::Retrying,
                _ => StopReason::Blocked,
            };
            self.stop(lane, id, reason);
        }
        self.write(id, failures, change, lane.clone(), Some(item.permit));
    }

    /// Records that were not tried keep their place, unless their lane stands still or is given up.
    pub(super) fn take_back(&mut self, lane: &Lane, untried: Vec<Item>, lost: bool) {
        match self.lanes.stop_of(lane) {
            Some(stop) => {
                for item in untried {
                    if item.record.delivery.id == stop.record {
                        self.lanes.give_back(stop.record);
                        self.due_wanted = true;
                    } else {
                        self.hold(item, stop.record, lane);
                    }
                }
            }
            None if lost || untried.iter().any(|item| !item.permit.is_current()) => {
                self.lanes.put_back(lane, untried);
                self.lanes.abandon(lane);
                self.want();
            }
            None => self.lanes.put_back(lane, untried),
        }
    }

    /// The lane stands still: what is queued behind is held.
    pub(super) fn stop(&mut self, lane: &Lane, record: RecordId, reason: StopReason) {
        if let Some(release) = self.releases.end(lane) {
            let permit = self.ownership.permit(lane.partition);
            self.write(release.record, 0, Change::StopRelease { by: record }, lane.clone(), permit);
        }
        let queued = self.lanes.stop(lane, StopState::by_this_instance(record, reason));
        for item in queued {
            self.hold(item, record, lane);
        }
    }

    pub(super) fn hold(&mut self, item: Item, behind: RecordId, lane: &Lane) {
        let (id, failures) = (item.record.delivery.id, item.record.failures());
        self.write(id, failures, Change::Hold { behind }, lane.clone(), Some(item.permit));
    }

    pub(super) fn write(
        &mut self,
        id: RecordId,
        failures: u32,
        change: Change,
        lane: Lane,
        permit: Option<Permit>,
    ) {
        if let Change::Hold { .. } = change {
            self.lanes.hold_begins(&lane);
        }
        self.outcomes.push(Pending {
            settlement: Settlement { id, failures, change },
            lane,
            permit,
            pause: Duration::ZERO,
        });
    }

    pub(super) fn start_settle(&mut self) -> Option<Task<SettleDone>> {
        if self.settler.is_some() {
            self.ask_for_steps();
        }
        if self.outcomes.is_empty() {
            return None;
        }
        let mut settler = self.settler.take()?;
        self.settle_began_at = self.frontier.last_id();
        let most = self.outcomes.len().min(SETTLE_LIMIT);
        let batch: Vec<Pending> = self.outcomes.drain(..most).collect();
        Some(Task::start(async move {
            let settlements: Vec<Settlement> =
                batch.iter().map(|pending| pending.settlement.clone()).collect();
            let result = settler.settle(&settlements).await;
            (settler, batch, result)
        }))
    }

    pub(super) fn settled(&mut self, written: Vec<Pending>, settled: Settled) {
        let (mut holds, mut of_lanes) = (0, 0);
        self.wrote = settled.number.map(|number| (self.settle_began_at, number)).or(self.wrote);
        for Pending { settlement, lane, pause, .. } in &written {
            if !settlement.change.is_of_lane() {
                self.lanes.forget(settlement.id);
                self.end_suspicion(settlement.id);
            }
            of_lanes += usize::from(settlement.change.is_of_lane());
            if !pause.is_zero() {
                self.lanes.outcome_goes_on(lane);
            }
            match &settlement.change {
                Change::Complete => {}
                Change::Resume
                | Change::CompleteAndResume
                | Change::Fail { lane: OnFailure::Continue, .. } => {
                    self.resume(lane, settlement.id);
                    if settled.releasing > 0 {
                        self.read_stops_of(lane);
                    }
                }
                Change::Release => {
                    self.releases.step_ends(lane);
                    self.lanes.taint(lane);
                    self.read_stops_of(lane);
                }
                Change::StopRelease { .. } => {}
                Change::Retry { delay, stop, .. } => {
                    if *stop {
                        self.lanes.stop_is_durable(lane, settlement.id);
                    }
                    self.due_times.insert(Instant::now() + *delay + DUE_SLACK);
                    if self.due_times.len() > DUE_TIMES {
                        self.due_times.pop_last();
                    }
                }
                Change::Fail { lane: OnFailure::Block, .. } | Change::Unroutable => {
                    self.lanes.stop_is_durable(lane, settlement.id);
                }
                Change::Hold { .. } => {
                    holds += 1;
                    if self.lanes.hold_ends(lane) {
                        self.want();
                    }
                }
            }
        }
        if settled.applied + settled.held < written.len() - of_lanes {
            // Some records were not as they should be: whatever became of them, they are not in memory.
            self.lanes.leave_behind();
        }
        if settled.held < holds {
            // A lane was released meanwhile; its records are pending and come again.
            let refused =
                written.iter().filter(|pending| matches!(pending.settlement.change, Change::Hold { .. }));
            self.refresh = self.refresh.union(refused.map(|pending| pending.lane.partition).collect());
            self.lanes.leave_behind();
            self.want();
        }
    }

    /// Asks for the next held records of lanes that go on in steps.
    fn ask_for_steps(&mut self) {
        let lanes = &self.lanes;
        for (lane, record) in self.releases.due(|lane, most| lanes.has_few(lane, most)) {
            let permit = self.ownership.permit(lane.partition);
            self.write(record, 0, Change::Release, lane, permit);
        }
    }

    /// Somebody has let the lane go on, perhaps in steps: its row says how far it is.
    fn read_stops_of(&mut self, lane: &Lane) {
        let partition = [lane.partition].into_iter().collect();
        self.refresh = self.refresh.union(partition);
        self.released = self.released.union(partition);
        self.barren = self.barren.without(partition);
        self.want();
    }

    /// A record of which something was noted has come to an end, perhaps without a call.
    fn end_suspicion(&mut self, record: RecordId) {
        if self.suspects.end(record) {
            let (store, around) = (Arc::clone(&self.store), Arc::clone(&self.around));
            self.tasks.spawn(async move {
                tell(store.end_call(record), &around).await;
            });
        }
    }

    pub(super) fn resume(&mut self, lane: &Lane, record: RecordId) {
        if self.lanes.resume(lane, record) {
            self.want();
        }
    }
}
