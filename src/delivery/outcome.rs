//! Runs: what the lanes hand to execute, and what execute hands back.

use std::sync::Arc;

use smallvec::SmallVec;

use super::work::{Item, LaneId};
use crate::{
    handler::Entry,
    record::Change,
    rules::{lifecycle::lane_goes_on, pacing::Pace},
    store::StoreError,
};

/// How a record left its run. Rare and large contents are boxed, because outcomes are moved several times.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Completed. The completion is to be written.
    Completed,
    /// Another end, or another attempt. The change is to be written.
    Changed(Box<Change>),
    /// Completed by the transaction of its handler. A lane that the record had stopped goes on.
    Written,
    /// Not tried. The record keeps its place.
    Untried,
    /// Rolled back because of a failure of the database. No attempt counts, and the record is fetched again.
    Aborted(Box<StoreError>),
    /// Unknown: the call was cut off, or another owner may have settled the record. The record is fetched
    /// again.
    Lost,
}

impl Outcome {
    /// The outcome that writes this change.
    pub(super) fn of(change: Change) -> Self {
        match change {
            Change::Complete => Self::Completed,
            change => Self::Changed(Box::new(change)),
        }
    }
}

/// What tasks report to the executor.
pub(super) struct Report {
    /// Runs that have ended, and parts of runs that go on.
    pub(super) runs: Vec<Run>,
    /// The pace of the runs of the task. Only in the first report of a task.
    pub(super) pace: Option<Pace>,
}

/// The work of one run: the lanes hand a run to the executor, and its task hands the run back with the outcomes.
pub(super) struct Run {
    pub(super) entry: Arc<Entry>,
    /// One lane, or several for handlers of mixed batches.
    pub(super) lanes: SmallVec<[LaneRun; 1]>,
    /// Whether more reports of the run follow, with those of its lanes that are not over. Cleared by `end`.
    pub(super) goes_on: bool,
}

impl Run {
    pub(super) fn new(entry: Arc<Entry>, lanes: SmallVec<[LaneRun; 1]>) -> Self {
        Self { entry, lanes, goes_on: true }
    }

    /// Ends the run. What stays in its lanes was not reported.
    pub(super) fn end(&mut self) {
        self.goes_on = false;
        self.lanes.retain(|lane| !lane.over);
        self.lanes.iter_mut().for_each(|lane| lane.over = true);
    }

    /// Ends the run at its place in memory. Returns what was not reported.
    pub(super) fn take(&mut self) -> Self {
        self.end();
        let (entry, lanes) = (Arc::clone(&self.entry), std::mem::take(&mut self.lanes));
        Self { entry, lanes, goes_on: false }
    }
}

/// The part of a run that belongs to one lane.
pub(super) struct LaneRun {
    pub(super) lane: LaneId,
    /// The records in id order. A record that was not tried is [`Outcome::Untried`].
    pub(super) items: SmallVec<[(Item, Outcome); 1]>,
    /// How many records have ended. Raised by [`LaneRun::end`], reset by [`LaneRun::ended`].
    ended: u32,
    /// Whether the next record may be tried. Cleared by `stop` and by an outcome that stops the lane.
    goes_on: bool,
    /// Whether nothing more will come of this lane. Set when its last records are reported.
    pub(super) over: bool,
}

impl LaneRun {
    pub(super) fn new(lane: LaneId, items: impl IntoIterator<Item = Item>) -> Self {
        let items = items.into_iter().map(|item| (item, Outcome::Untried)).collect();
        Self { lane, items, ended: 0, goes_on: true, over: false }
    }

    /// The next record, or `None` if there is no more or the lane may not go on.
    pub(super) fn next(&self) -> Option<&Item> {
        self.items.get(self.ended as usize).filter(|_| self.goes_on).map(|(item, _)| item)
    }

    /// The records that have not ended.
    pub(super) fn rest(&self) -> impl Iterator<Item = &Item> {
        self.items[self.ended as usize..].iter().map(|(item, _)| item)
    }

    /// A call with the next `count` records begins. If the call is cut off, its effect is unknown and the
    /// records are lost.
    pub(super) fn begin(&mut self, count: usize) {
        let begun = self.items[self.ended as usize..].iter_mut().take(count);
        begun.for_each(|(_, outcome)| *outcome = Outcome::Lost);
    }

    /// Sets the outcome of the next record. Returns false if there is none.
    pub(super) fn end(&mut self, outcome: Outcome) -> bool {
        let Some(item) = self.items.get_mut(self.ended as usize) else { return false };
        self.goes_on &= match &outcome {
            Outcome::Completed | Outcome::Written => true,
            Outcome::Changed(change) => lane_goes_on(change),
            Outcome::Untried | Outcome::Aborted(_) | Outcome::Lost => false,
        };
        item.1 = outcome;
        self.ended += 1;
        true
    }

    /// The lane does not go on: the next record and all later ones stay untried.
    pub(super) fn stop(&mut self) {
        self.goes_on = false;
        self.take_back();
    }

    /// The database has rolled back all that was begun: the records may be tried again.
    pub(super) fn take_back(&mut self) {
        let begun = self.items[self.ended as usize..].iter_mut();
        begun.for_each(|(_, outcome)| *outcome = Outcome::Untried);
    }

    /// Splits off the records that have ended since the last call, or returns `None`. If the lane may not go
    /// on, all its records are split off, so that untried records stay behind lost ones.
    pub(super) fn ended(&mut self) -> Option<Self> {
        let count = std::mem::take(&mut self.ended) as usize;
        if count == 0 {
            return None;
        }
        self.over = !self.goes_on || count == self.items.len();
        let count = if self.over { self.items.len() } else { count };
        let items = self.items.drain(..count).collect();
        Some(Self { lane: self.lane, items, ended: 0, goes_on: true, over: self.over })
    }
}
