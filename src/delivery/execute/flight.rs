//! A flight: a run under way. It owns its records until it has reported the outcome of each.
//!
//! Every end of the task of a flight leads to a report: the last record, a lapsed lease, a panic around the
//! flight, a cancellation before the first poll. The report has the known outcomes, and lists all other records as
//! untried or lost. No outcome is lost, and no lane stays marked as running.

use std::{future::Future, pin::pin, task::Poll, time::Duration};

use smallvec::SmallVec;
use tokio::sync::mpsc::UnboundedSender;

use super::slot::Slot;
use crate::delivery::{
    outcome::{Landed, LaneRun, Outcome, Report},
    work::Item,
};

/// The longest time that an outcome waits for its report while later calls of its run go on. A longer time
/// would repeat more calls after a crash; a shorter one would cost a report per call.
const REPORTED_WITHIN: Duration = Duration::from_millis(50);

/// A run under way.
pub(super) struct Flight<'a> {
    /// The records that are not reported. Changed by the begin and end of each call, taken by the last
    /// report.
    lanes: SmallVec<[LaneRun; 1]>,
    /// The sender for reports. Borrowed from the task: two threads in turn would count a clone up and down.
    /// Never changes.
    done: &'a UnboundedSender<Report>,
    /// The fence row of a transactional run. Set before the run starts; `None` during a transaction and after
    /// the last report.
    slot: Option<Slot>,
    /// The number of the handler in the registry. Never changes.
    handler: usize,
    /// Whether the handler is transactional. Never changes.
    transactional: bool,
    /// Whether an outcome waits for its report. Set by `end`, cleared by `report`.
    unreported: bool,
    /// Since when an outcome waits for its report, on the clock. Set by the `begin` after that outcome,
    /// cleared by `report`.
    unreported_since: Option<Duration>,
    /// When the call under way began, on the clock. Set by `begin`.
    started: Duration,
    /// Whether all records were reported or handed over. Set by `take`.
    over: bool,
}

impl<'a> Flight<'a> {
    pub(super) fn new(
        lanes: SmallVec<[LaneRun; 1]>,
        (handler, transactional): (usize, bool),
        slot: Option<Slot>,
        done: &'a UnboundedSender<Report>,
    ) -> Self {
        let (unreported, unreported_since) = (false, None);
        Self {
            lanes,
            done,
            slot,
            handler,
            transactional,
            unreported,
            unreported_since,
            started: Duration::ZERO,
            over: false,
        }
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
        self.send(Landed { lanes, handler: self.handler, transactional: self.transactional, goes_on: true });
    }

    fn send(&self, landed: Landed) {
        // The send fails only if the dispatcher is gone; then this task is about to be cancelled.
        let _ = self.done.send(Report { runs: vec![landed], pace: None });
    }

    /// Ends the run. Returns all records that were not reported.
    pub(super) fn land(mut self) -> Landed {
        self.take()
    }

    fn take(&mut self) -> Landed {
        self.over = true;
        // Frees the fence row before the report, because the report lets the next transactional run start.
        self.slot = None;
        let mut lanes = std::mem::take(&mut self.lanes);
        lanes.retain(|lane| !lane.over);
        lanes.iter_mut().for_each(|lane| lane.over = true);
        Landed { lanes, handler: self.handler, transactional: self.transactional, goes_on: false }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.over {
            let landed = self.take();
            self.send(landed);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;
    use crate::delivery::fixtures;

    fn lanes(count: i64) -> SmallVec<[LaneRun; 1]> {
        fixtures::lanes(&fixtures::owning_all(), count)
    }

    /// The outcomes of the next report as words, and whether the run goes on.
    fn reported(reports: &mut UnboundedReceiver<Report>) -> (Vec<&'static str>, bool) {
        let mut report = reports.try_recv().unwrap();
        let Landed { lanes, goes_on, .. } = report.runs.remove(0);
        let words = lanes.iter().flat_map(|lane| &lane.items).map(|(_, outcome)| match outcome {
            Outcome::Completed | Outcome::Changed(_) => "write",
            Outcome::Written => "written",
            Outcome::Untried => "untried",
            Outcome::Aborted(_) => "aborted",
            Outcome::Lost => "lost",
        });
        (words.collect(), goes_on)
    }

    #[tokio::test(start_paused = true)]
    async fn a_flight_that_never_began_gives_its_records_back() {
        let (done, mut reports) = unbounded_channel();
        let flight = Flight::new(lanes(2), (0, false), None, &done);
        drop(flight);
        assert_eq!(reported(&mut reports), (vec!["untried", "untried"], false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flight_that_is_cut_off_reports_what_has_ended() {
        let (done, mut reports) = unbounded_channel();
        let mut flight = Flight::new(lanes(3), (0, false), None, &done);
        flight.begin(0, 1, Duration::ZERO);
        flight.end(0, Outcome::Completed);
        flight.begin(0, 1, Duration::from_millis(1));
        assert_eq!(flight.started(), Duration::from_millis(1));
        drop(flight);
        assert_eq!(reported(&mut reports), (vec!["write", "lost", "untried"], false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_rolled_back_is_not_lost() {
        let (done, mut reports) = unbounded_channel();
        let mut flight = Flight::new(lanes(3), (0, false), None, &done);
        flight.begin(0, 3, Duration::ZERO);
        flight.take_back(0);
        flight.begin(0, 1, Duration::ZERO);
        drop(flight);
        assert_eq!(reported(&mut reports), (vec!["lost", "untried", "untried"], false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_is_reported_while_a_call_waits() {
        let (done, mut reports) = unbounded_channel();
        let mut flight = Flight::new(lanes(3), (0, false), None, &done);
        for at in [0, 1] {
            flight.begin(0, 1, Duration::from_millis(at));
            flight.end(0, Outcome::Completed);
        }
        flight.begin(0, 1, Duration::from_millis(2));
        let waited = tokio::time::timeout(REPORTED_WITHIN, flight.wait(std::future::pending::<()>()));
        assert!(waited.await.is_err());
        assert_eq!(reported(&mut reports), (vec!["write", "write"], true));
        flight.end(0, Outcome::Completed);
        drop(flight);
        assert_eq!(reported(&mut reports), (vec!["write"], false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_may_not_go_on_is_reported_as_a_whole() {
        let (done, mut reports) = unbounded_channel();
        let mut flight = Flight::new(lanes(3), (0, false), None, &done);
        flight.begin(0, 3, Duration::ZERO);
        flight.end(0, Outcome::Lost);
        flight.stop(0);
        flight.report();
        assert_eq!(reported(&mut reports), (vec!["lost", "untried", "untried"], true));
        drop(flight);
        assert_eq!(reported(&mut reports), (vec![], false), "nothing is told twice");
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_is_reported_between_calls_that_are_slow_together() {
        let (done, mut reports) = unbounded_channel();
        let mut flight = Flight::new(lanes(4), (0, false), None, &done);
        for at in [0, 30, 60, 90] {
            flight.begin(0, 1, Duration::from_millis(at));
            flight.end(0, Outcome::Completed);
        }
        // The outcomes are known at 30 ms. The first call after 80 ms reports them.
        assert_eq!(reported(&mut reports), (vec!["write", "write", "write"], true));
    }
}
