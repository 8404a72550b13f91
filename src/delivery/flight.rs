//! A flight: a run under way. It owns its records until it has reported what became of each.
//!
//! Whatever ends the task of a flight (its last record, a lapse of the lease, a panic around it, a stop
//! before it was polled at all) ends in a report: the outcomes that are known, and all other records as
//! they were. Nothing that has ended is lost, and no lane is left running.

use std::{future::Future, pin::pin, task::Poll, time::Duration};

use smallvec::SmallVec;
use tokio::sync::mpsc::UnboundedSender;

use super::{lane::Item, transaction::Slot};
use crate::{
    record::{Change, Lane},
    rules::lifecycle::lane_goes_on,
    store::StoreError,
};

/// An outcome is reported within this time while later calls of its run go on: longer would repeat more
/// after a crash, shorter would cost a report for each call.
const REPORTED_WITHIN: Duration = Duration::from_millis(50);

/// How a record left its run.
#[derive(Debug)]
pub(super) enum Outcome {
    /// This is to be written.
    Write(Change),
    /// Completed in its handler's own transaction; a lane that it had stopped goes on.
    Written,
    /// Not tried: it keeps its place.
    Untried,
    /// The database failed around it, no attempt counts: it is fetched again. Boxed: it is rare, and
    /// outcomes change hands several times.
    Aborted(Box<StoreError>),
    /// It was cut off, or another owner has settled it or may have: it is to be looked at again.
    Gone,
}

/// What flights tell the pipeline.
pub(super) struct Report {
    pub(super) flights: Vec<Landed>,
    /// What a run of the task took of the processor until it ended or waited for the first time.
    pub(super) mean_run: Option<Duration>,
}

/// Outcomes of a flight.
pub(super) struct Landed {
    pub(super) lanes: SmallVec<[LaneRun; 1]>,
    /// Whether the run was one of a transactional handler.
    pub(super) transactional: bool,
    /// More will come of it, of those of its lanes that are not over.
    pub(super) goes_on: bool,
}

/// The part of a run that belongs to one lane.
pub(super) struct LaneRun {
    pub(super) lane: Lane,
    /// The records in their order. What is not tried yet is [`Outcome::Untried`].
    pub(super) items: SmallVec<[(Item, Outcome); 1]>,
    /// How many have ended. Moved on by [`Flight::end`], back by a report.
    ended: usize,
    /// Whether the next record may be tried. Turned false by an outcome after which it may not.
    goes_on: bool,
    /// Nothing more will come of this lane. Turned true by the report of the last.
    pub(super) over: bool,
}

impl LaneRun {
    pub(super) fn new(lane: Lane, items: impl IntoIterator<Item = Item>) -> Self {
        let items = items.into_iter().map(|item| (item, Outcome::Untried)).collect();
        Self { lane, items, ended: 0, goes_on: true, over: false }
    }
}

/// A run under way.
pub(super) struct Flight<'a> {
    lanes: SmallVec<[LaneRun; 1]>,
    /// Borrowed from the task: a sender of its own would be counted up and down by two threads in turn.
    done: &'a UnboundedSender<Report>,
    /// The guard of a transactional run, held from before it starts.
    slot: Option<Slot>,
    transactional: bool,
    /// Whether an outcome waits to be reported.
    unreported: bool,
    /// Since when one does, on the clock; known from the start of the next call.
    unreported_since: Option<Duration>,
    /// When the call under way started, on the clock.
    started: Duration,
    /// Everything was reported or handed over.
    over: bool,
}

impl<'a> Flight<'a> {
    pub(super) fn new(
        lanes: SmallVec<[LaneRun; 1]>,
        transactional: bool,
        slot: Option<Slot>,
        done: &'a UnboundedSender<Report>,
    ) -> Self {
        let (unreported, unreported_since) = (false, None);
        Self {
            lanes,
            done,
            slot,
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

    /// The guard of a transactional run, for one transaction. Dropped meanwhile, it clears up after itself.
    pub(super) fn lend_slot(&mut self) -> Option<Slot> {
        self.slot.take()
    }

    /// The transaction has ended.
    pub(super) fn take_slot_back(&mut self, slot: Slot) {
        self.slot = Some(slot);
    }

    /// The next record of a lane, if there is one and it may be tried.
    pub(super) fn next(&self, lane: usize) -> Option<&Item> {
        let LaneRun { items, ended, goes_on, .. } = &self.lanes[lane];
        items.get(*ended).filter(|_| *goes_on).map(|(item, _)| item)
    }

    /// The records of a lane that have not ended.
    pub(super) fn rest(&self, lane: usize) -> impl Iterator<Item = &Item> {
        let LaneRun { items, ended, .. } = &self.lanes[lane];
        items[*ended..].iter().map(|(item, _)| item)
    }

    /// A call for these many records of a lane begins. If it is cut off, nobody knows what it has done.
    pub(super) fn begin(&mut self, lane: usize, count: usize, started: Duration) {
        self.started = started;
        let LaneRun { items, ended, .. } = &mut self.lanes[lane];
        items[*ended..].iter_mut().take(count).for_each(|(_, outcome)| *outcome = Outcome::Gone);
        if !self.unreported {
            return;
        }
        let since = *self.unreported_since.get_or_insert(started);
        if started.saturating_sub(since) >= REPORTED_WITHIN {
            self.report();
        }
    }

    /// The next record of a lane has ended like this.
    pub(super) fn end(&mut self, lane: usize, outcome: Outcome) {
        let LaneRun { items, ended, goes_on, .. } = &mut self.lanes[lane];
        let Some(item) = items.get_mut(*ended) else { return };
        *goes_on &= match &outcome {
            Outcome::Write(change) => lane_goes_on(change),
            Outcome::Written => true,
            Outcome::Untried | Outcome::Aborted(_) | Outcome::Gone => false,
        };
        item.1 = outcome;
        *ended += 1;
        self.unreported = true;
    }

    /// The next record is not tried, nor any after it in its lane.
    pub(super) fn stop(&mut self, lane: usize) {
        self.lanes[lane].goes_on = false;
        self.take_back(lane);
    }

    /// What was begun in a lane was taken back as a whole: it may be tried again.
    pub(super) fn take_back(&mut self, lane: usize) {
        let LaneRun { items, ended, .. } = &mut self.lanes[lane];
        items[*ended..].iter_mut().for_each(|(_, outcome)| *outcome = Outcome::Untried);
    }

    /// Waits for a call that has begun. What ended before it is reported meanwhile, if it takes long.
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

    /// Reports what has ended; the run goes on.
    fn report(&mut self) {
        (self.unreported, self.unreported_since) = (false, None);
        let mut lanes = SmallVec::new();
        for LaneRun { lane, items, ended, goes_on, over } in &mut self.lanes {
            let count = std::mem::take(ended);
            if count == 0 {
                continue;
            }
            // A lane that may not go on is reported as a whole: what was not tried stays behind what was lost.
            *over = !*goes_on || count == items.len();
            let count = if *over { items.len() } else { count };
            let items = items.drain(..count).collect();
            lanes.push(LaneRun { lane: lane.clone(), items, ended: 0, goes_on: true, over: *over });
        }
        self.send(Landed { lanes, transactional: self.transactional, goes_on: true });
    }

    fn send(&self, landed: Landed) {
        // No receiver: the pipeline is gone, and this task is about to be cancelled.
        let _ = self.done.send(Report { flights: vec![landed], mean_run: None });
    }

    /// The run has ended: everything that was not reported.
    pub(super) fn land(mut self) -> Landed {
        self.take()
    }

    fn take(&mut self) -> Landed {
        self.over = true;
        // Before the report, which lets the next transactional run start.
        self.slot = None;
        let mut lanes = std::mem::take(&mut self.lanes);
        lanes.retain(|lane| !lane.over);
        lanes.iter_mut().for_each(|lane| lane.over = true);
        Landed { lanes, transactional: self.transactional, goes_on: false }
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

    use super::{super::fixtures, *};

    fn lanes(count: i64) -> SmallVec<[LaneRun; 1]> {
        fixtures::lanes(&fixtures::owning_all(), count)
    }

    /// The words for what was reported, and whether the run goes on.
    fn reported(reports: &mut UnboundedReceiver<Report>) -> (Vec<&'static str>, bool) {
        let mut report = reports.try_recv().unwrap();
        let Landed { lanes, goes_on, .. } = report.flights.remove(0);
        let words = lanes.iter().flat_map(|lane| &lane.items).map(|(_, outcome)| match outcome {
            Outcome::Write(_) => "write",
            Outcome::Written => "written",
            Outcome::Untried => "untried",
            Outcome::Aborted(_) => "aborted",
            Outcome::Gone => "gone",
        });
        (words.collect(), goes_on)
    }

    #[tokio::test(start_paused = true)]
    async fn a_flight_that_never_began_gives_its_records_back() {
        let (done, mut reports) = unbounded_channel();
        let flight = Flight::new(lanes(2), false, None, &done);
        drop(flight);
        assert_eq!(reported(&mut reports), (vec!["untried", "untried"], false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flight_that_is_cut_off_reports_what_has_ended() {
        let (done, mut reports) = unbounded_channel();
        let mut flight = Flight::new(lanes(3), false, None, &done);
        flight.begin(0, 1, Duration::ZERO);
        flight.end(0, Outcome::Write(Change::Complete));
        flight.begin(0, 1, Duration::from_millis(1));
        drop(flight);
        assert_eq!(reported(&mut reports), (vec!["write", "gone", "untried"], false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_is_reported_while_a_call_waits() {
        let (done, mut reports) = unbounded_channel();
        let mut flight = Flight::new(lanes(3), false, None, &done);
        for at in [0, 1] {
            flight.begin(0, 1, Duration::from_millis(at));
            flight.end(0, Outcome::Write(Change::Complete));
        }
        flight.begin(0, 1, Duration::from_millis(2));
        let waited = tokio::time::timeout(REPORTED_WITHIN, flight.wait(std::future::pending::<()>()));
        assert!(waited.await.is_err());
        assert_eq!(reported(&mut reports), (vec!["write", "write"], true));
        flight.end(0, Outcome::Write(Change::Complete));
        drop(flight);
        assert_eq!(reported(&mut reports), (vec!["write"], false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_may_not_go_on_is_reported_as_a_whole() {
        let (done, mut reports) = unbounded_channel();
        let mut flight = Flight::new(lanes(3), false, None, &done);
        flight.begin(0, 3, Duration::ZERO);
        flight.end(0, Outcome::Gone);
        flight.stop(0);
        flight.report();
        assert_eq!(reported(&mut reports), (vec!["gone", "untried", "untried"], true));
        drop(flight);
        assert_eq!(reported(&mut reports), (vec![], false), "nothing is told twice");
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_is_reported_between_calls_that_are_slow_together() {
        let (done, mut reports) = unbounded_channel();
        let mut flight = Flight::new(lanes(4), false, None, &done);
        for at in [0, 30, 60, 90] {
            flight.begin(0, 1, Duration::from_millis(at));
            flight.end(0, Outcome::Write(Change::Complete));
        }
        // Known to have ended at 30, reported at the start of the first call after 80.
        assert_eq!(reported(&mut reports), (vec!["write", "write", "write"], true));
    }
}
