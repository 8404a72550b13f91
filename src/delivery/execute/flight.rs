//! A flight: a run under way. The run stays in its place in memory; the flight writes the outcomes there.

use std::{future::Future, pin::pin, sync::Arc, task::Poll, time::Duration};

use smallvec::SmallVec;
use tokio::sync::mpsc::UnboundedSender;

use super::slot::Slot;
use crate::{
    delivery::{
        outcome::{LaneRun, Outcome, Report, Run},
        work::Item,
    },
    handler::Entry,
    wake::offer_woken_task,
};

/// The longest time that an outcome waits for its report while later calls of its run go on. A longer time
/// would repeat more calls after a crash; a shorter one would cost a report per call.
const REPORTED_WITHIN: Duration = Duration::from_millis(50);

/// A run under way.
pub(super) struct Flight<'a> {
    /// The records that are not reported. Changed by the begin and end of each call.
    lanes: &'a mut SmallVec<[LaneRun; 1]>,
    /// The entry of the handler, for the reports of parts. Never changes.
    entry: &'a Arc<Entry>,
    /// The sender for reports. Borrowed from the task: two threads in turn would count a clone up and down.
    /// Never changes.
    done: &'a UnboundedSender<Report>,
    /// The fence row of a transactional run. Set before the run starts; `None` during a transaction.
    slot: Option<Slot>,
    /// Whether an outcome waits for its report. Set by `end`, cleared by `report`.
    unreported: bool,
    /// Since when an outcome waits for its report, on the clock. Set by the `begin` after that outcome,
    /// cleared by `report`.
    unreported_since: Option<Duration>,
    /// When the call under way began, on the clock. Set by `begin`.
    started: Duration,
}

impl<'a> Flight<'a> {
    pub(super) fn new(run: &'a mut Run, slot: Option<Slot>, done: &'a UnboundedSender<Report>) -> Self {
        let Run { entry, lanes, .. } = run;
        let (unreported, unreported_since, started) = (false, None, Duration::ZERO);
        Self { lanes, entry, done, slot, unreported, unreported_since, started }
    }

    /// The entry of the handler.
    pub(super) fn entry(&self) -> &'a Entry {
        self.entry
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// When the last call began, on the clock.
    pub(super) fn started(&self) -> Duration {
        self.started
    }

    /// Takes the fence row of a transactional run for one transaction. If the slot is dropped in a call, the
    /// slot resolves its fence row by itself.
    pub(super) fn lend_slot(&mut self) -> Option<Slot> {
        self.slot.take()
    }

    /// Returns the fence row after the transaction.
    pub(super) fn take_slot_back(&mut self, slot: Slot) {
        self.slot = Some(slot);
    }

    /// The next record of a lane, or `None` if the lane has no more or may not go on.
    pub(super) fn next(&self, lane: usize) -> Option<&Item> {
        self.lanes[lane].next()
    }

    /// The records of a lane that have not ended.
    pub(super) fn rest(&self, lane: usize) -> impl Iterator<Item = &Item> {
        self.lanes[lane].rest()
    }

    /// A call with the next `count` records of a lane begins. If the call is cut off, its effect is unknown
    /// and the records are lost.
    pub(super) fn begin(&mut self, lane: usize, count: usize, started: Duration) {
        self.started = started;
        self.lanes[lane].begin(count);
        if !self.unreported {
            return;
        }
        let since = *self.unreported_since.get_or_insert(started);
        if started.saturating_sub(since) >= REPORTED_WITHIN {
            self.report();
        }
    }

    /// Sets the outcome of the next record of a lane.
    pub(super) fn end(&mut self, lane: usize, outcome: Outcome) {
        self.unreported |= self.lanes[lane].end(outcome);
    }

    /// The lane does not go on: the next record and all later ones stay untried.
    pub(super) fn stop(&mut self, lane: usize) {
        self.lanes[lane].stop();
    }

    /// The database has rolled back all that was begun in a lane: the records may be tried again.
    pub(super) fn take_back(&mut self, lane: usize) {
        self.lanes[lane].take_back();
    }

    /// Waits for a call that has begun. If the call takes long, reports the earlier outcomes meanwhile.
    pub(super) async fn wait<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        if let Poll::Ready(returned) = futures::poll!(call.as_mut()) {
            return returned;
        }
        if let Some(since) = self.unreported_since {
            let left = (since + REPORTED_WITHIN).saturating_sub(self.started);
            match Box::pin(tokio::time::timeout(left, call.as_mut())).await {
                Ok(returned) => return returned,
                Err(_) => self.report(),
            }
        }
        call.await
    }

    /// Reports the outcomes so far. The run goes on.
    fn report(&mut self) {
        (self.unreported, self.unreported_since) = (false, None);
        let lanes = self.lanes.iter_mut().filter_map(LaneRun::ended).collect();
        let part = Run::new(Arc::clone(self.entry), lanes);
        // The send fails only if the dispatcher is gone; then this task is about to be cancelled.
        let _ = self.done.send(Report { runs: vec![part], pace: None });
        // The next call may block this thread.
        offer_woken_task();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;
    use crate::delivery::fixtures;

    fn run(count: i64) -> Run {
        fixtures::run(&fixtures::owning_all(), count)
    }

    /// The outcomes of a run as words.
    fn words(run: &Run) -> Vec<&'static str> {
        let outcomes = run.lanes.iter().flat_map(|lane| &lane.items).map(|(_, outcome)| match outcome {
            Outcome::Completed | Outcome::Changed(_) => "write",
            Outcome::Written => "written",
            Outcome::Untried => "untried",
            Outcome::Aborted(_) => "aborted",
            Outcome::Lost => "lost",
        });
        outcomes.collect()
    }

    /// The outcomes that are left at the end of a run.
    fn left(mut run: Run) -> Vec<&'static str> {
        run.end();
        assert!(run.lanes.iter().all(|lane| lane.over));
        words(&run)
    }

    /// The outcomes of the next report, of a run that goes on.
    fn reported(reports: &mut UnboundedReceiver<Report>) -> Vec<&'static str> {
        let report = reports.try_recv().unwrap();
        assert!(report.runs[0].goes_on);
        words(&report.runs[0])
    }

    #[tokio::test(start_paused = true)]
    async fn a_flight_that_is_cut_off_leaves_what_has_ended() {
        let (done, mut run) = (unbounded_channel().0, run(3));
        let mut flight = Flight::new(&mut run, None, &done);
        flight.begin(0, 1, Duration::ZERO);
        flight.end(0, Outcome::Completed);
        flight.begin(0, 1, Duration::from_millis(1));
        assert_eq!(flight.started(), Duration::from_millis(1));
        assert_eq!(left(run), ["write", "lost", "untried"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_rolled_back_is_not_lost() {
        let (done, mut run) = (unbounded_channel().0, run(3));
        let mut flight = Flight::new(&mut run, None, &done);
        flight.begin(0, 3, Duration::ZERO);
        flight.take_back(0);
        flight.begin(0, 1, Duration::ZERO);
        assert_eq!(left(run), ["lost", "untried", "untried"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_is_reported_while_a_call_waits() {
        let ((done, mut reports), mut run) = (unbounded_channel(), run(3));
        let mut flight = Flight::new(&mut run, None, &done);
        for at in [0, 1] {
            flight.begin(0, 1, Duration::from_millis(at));
            flight.end(0, Outcome::Completed);
        }
        flight.begin(0, 1, Duration::from_millis(2));
        let waited = tokio::time::timeout(REPORTED_WITHIN, flight.wait(std::future::pending::<()>()));
        assert!(waited.await.is_err());
        assert_eq!(reported(&mut reports), ["write", "write"]);
        flight.end(0, Outcome::Completed);
        assert_eq!(left(run), ["write"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_may_not_go_on_is_reported_as_a_whole() {
        let ((done, mut reports), mut run) = (unbounded_channel(), run(3));
        let mut flight = Flight::new(&mut run, None, &done);
        flight.begin(0, 3, Duration::ZERO);
        flight.end(0, Outcome::Lost);
        flight.stop(0);
        flight.report();
        assert_eq!(reported(&mut reports), ["lost", "untried", "untried"]);
        run.end();
        assert!(run.lanes.is_empty(), "nothing is told twice");
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_is_reported_between_calls_that_are_slow_together() {
        let ((done, mut reports), mut run) = (unbounded_channel(), run(4));
        let mut flight = Flight::new(&mut run, None, &done);
        for at in [0, 30, 60, 90] {
            flight.begin(0, 1, Duration::from_millis(at));
            flight.end(0, Outcome::Completed);
        }
        // The outcomes are known at 30 ms. The first call after 80 ms reports them.
        assert_eq!(reported(&mut reports), ["write", "write", "write"]);
    }
}
