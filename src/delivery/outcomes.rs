//! Outcomes: from ended runs to durable writes, and what each means for its lane.

use std::{mem::replace, sync::Arc, task::Poll};

use futures::{StreamExt, future::OptionFuture, stream::FuturesUnordered};
use tokio::time::Instant;

use super::{
    intake::ERROR_PAUSE,
    lane::Item,
    pipeline::{Pending, Pipeline, SettleDone, Task},
    run::{Finished, FinishedLane, Outcome, Report},
    stops::StopState,
};
use crate::{
    ownership::Permit,
    record::{AfterFailure, Change, Lane, RecordId, Settlement, StopReason},
    rules::{lifecycle::lane_goes_on, pacing},
    store::Settled,
    telemetry::Signal,
};

/// Runs that have waited and report together at most.
const REPORTED_TOGETHER: usize = 32;
/// Records of one settle at most.
const SETTLE_LIMIT: usize = 5_000;
/// Added to the time of a retry, so that the database agrees that it has come.
const DUE_SLACK: std::time::Duration = std::time::Duration::from_millis(5);
/// Times of retries that are remembered; beyond them the poll interval decides.
const DUE_TIMES: usize = 1_000;

impl Pipeline {
    /// Starts what may run. Many short runs share a task and report together what ended together: a
    /// task and a report each would cost more than a short handler does.
    pub(super) fn start_runs(&mut self) {
        let mut runs = Vec::new();
        while !self.clearing && self.lanes.runs() < self.config.concurrency {
            let Some(run) = self.lanes.next_run() else { break };
            runs.push(run);
        }
        let share = pacing::runs_per_task(self.mean_run);
        while !runs.is_empty() {
            let together = runs.split_off(runs.len().saturating_sub(share));
            let (around, done) = (Arc::clone(&self.around), self.done.clone());
            self.tasks.spawn(async move {
                let (began, count) = (Instant::now(), together.len() as u32);
                let mut ended = Vec::with_capacity(together.len());
                let waiting = FuturesUnordered::new();
                // One that ends at once leaves its place in memory to the next.
                let mut place = Box::pin(OptionFuture::from(None));
                for run in together {
                    place.as_mut().set(Some(run.execute(&around)).into());
                    match futures::poll!(place.as_mut()) {
                        Poll::Ready(finished) => ended.extend(finished),
                        Poll::Pending => waiting.push(replace(&mut place, Box::pin(None.into()))),
                    }
                }
                // No receiver: the pipeline is gone, and this task is about to be cancelled.
                let _ = done.send(Report { ended, mean_run: Some(began.elapsed() / count) });
                let mut waiting = waiting.ready_chunks(REPORTED_TOGETHER);
                while let Some(ended) = waiting.next().await {
                    let ended = ended.into_iter().flatten().collect();
                    let _ = done.send(Report { ended, mean_run: None });
                }
            });
        }
    }

    pub(super) fn task_ended(&mut self, ended: Result<(), tokio::task::JoinError>) {
        // Handlers are caught; a panic around them leaves books that cannot be trusted.
        if ended.is_err_and(|error| error.is_panic()) {
            self.tasks.abort_all();
            self.clearing = true;
        }
        if self.clearing && self.tasks.is_empty() {
            while let Ok(report) = self.reports.try_recv() {
                self.take_in_report(report);
            }
            self.clearing = false;
            self.lanes.abandon_runs();
            self.want();
        }
    }

    pub(super) fn take_in_report(&mut self, report: Report) {
        if let Some(mean_run) = report.mean_run {
            self.mean_run = (self.mean_run + mean_run) / 2;
        }
        report.ended.into_iter().for_each(|finished| self.take_in_run(finished));
    }

    fn take_in_run(&mut self, Finished { lanes }: Finished) {
        self.lanes.end_run();
        for FinishedLane { lane, items } in lanes {
            let mut untried = Vec::new();
            let mut lost = false;
            for (item, outcome) in items {
                match outcome {
                    Outcome::Write(change) => self.write_outcome(item, change, &lane),
                    Outcome::Written => {
                        let id = item.record.delivery.id;
                        self.lanes.forget(id);
                        if item.stops_lane {
                            self.resume(&lane, id);
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
            self.take_back(&lane, untried, lost);
            self.lanes.end_lane(lane);
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
            None if lost || !self.ownership.is_open(lane.partition) => {
                self.lanes.put_back(lane, untried);
                self.lanes.abandon(lane);
                self.want();
            }
            None => self.lanes.put_back(lane, untried),
        }
    }

    /// The lane stands still: what is queued behind is held.
    pub(super) fn stop(&mut self, lane: &Lane, record: RecordId, reason: StopReason) {
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
        self.lanes.writing(id);
        if let Change::Hold { .. } = change {
            self.lanes.hold_begins(&lane);
        }
        self.outcomes.push(Pending {
            settlement: Settlement { id, failures, change },
            lane,
            _permit: permit,
        });
    }

    pub(super) fn start_settle(&mut self) -> Option<Task<SettleDone>> {
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
        let (mut holds, mut resumed) = (0, 0);
        self.wrote = settled.number.map(|number| (self.settle_began_at, number)).or(self.wrote);
        for Pending { settlement, lane, _permit } in &written {
            self.lanes.forget(settlement.id);
            match &settlement.change {
                Change::Complete => {}
                Change::Resume => {
                    resumed += 1;
                    self.resume(lane, settlement.id);
                }
                Change::CompleteAndResume | Change::Fail { lane: AfterFailure::Continue, .. } => {
                    self.resume(lane, settlement.id)
                }
                Change::Retry { delay, stop, .. } => {
                    if *stop {
                        self.lanes.stop_is_durable(lane, settlement.id);
                    }
                    self.due_times.insert(Instant::now() + *delay + DUE_SLACK);
                    if self.due_times.len() > DUE_TIMES {
                        self.due_times.pop_last();
                    }
                }
                Change::Fail { lane: AfterFailure::Block, .. } | Change::Unroutable => {
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
        if settled.applied + settled.held < written.len() - resumed {
            // Some records were not as they should be: whatever became of them, they are not in memory.
            self.lanes.leave_behind();
        }
        if settled.held < holds {
            // A lane was released meanwhile; its records are pending and come again.
            self.refresh_wanted = true;
            self.lanes.leave_behind();
            self.want();
        }
    }

    pub(super) fn resume(&mut self, lane: &Lane, record: RecordId) {
        if self.lanes.resume(lane, record) {
            self.want();
        }
    }
}
