//! Runs: what the lanes hand to execute, and how it comes back.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::work::{Item, LaneId};
use crate::{handler::Entry, record::Change, rules::lifecycle::lane_goes_on, store::StoreError};

/// How a record left its run. What is rare is boxed: outcomes change hands several times.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Delivered; this is to be written.
    Completed,
    /// Another end, or another attempt; this is to be written.
    Changed(Box<Change>),
    /// Completed in its handler's own transaction; a lane that it had stopped goes on.
    Written,
    /// Not tried: it keeps its place.
    Untried,
    /// The database failed around it, no attempt counts: it is fetched again.
    Aborted(Box<StoreError>),
    /// It was cut off, or another owner has settled it or may have: it is to be fetched again.
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

/// What runs tell the dispatcher.
pub(super) struct Report {
    pub(super) runs: Vec<Landed>,
    /// What a run of the task took of the processor until it ended or waited for the first time.
    pub(super) mean_run: Option<Duration>,
}

/// Outcomes of a run.
pub(super) struct Landed {
    pub(super) lanes: SmallVec<[LaneRun; 1]>,
    /// The number of its handler.
    pub(super) handler: usize,
    /// Whether the run was one of a transactional handler.
    pub(super) transactional: bool,
    /// More will come of the run, from those of its lanes that are not over.
    pub(super) goes_on: bool,
}

/// Work for one task: what the lanes hand to the executor.
pub(super) struct Run {
    pub(super) entry: Arc<Entry>,
    /// More than one only for handlers of mixed batches.
    pub(super) lanes: SmallVec<[LaneRun; 1]>,
}

/// The part of a run that belongs to one lane.
pub(super) struct LaneRun {
    pub(super) lane: LaneId,
    /// The records in their order. What is not tried yet is [`Outcome::Untried`].
    pub(super) items: SmallVec<[(Item, Outcome); 1]>,
    /// How many have ended. Moved on by [`LaneRun::end`], back by [`LaneRun::ended`].
    ended: u32,
    /// Whether the next record may be tried. Turned false by an outcome after which it may not.
    goes_on: bool,
    /// Nothing more will come of this lane. Turned true by the report of the last.
    pub(super) over: bool,
}

impl LaneRun {
    pub(super) fn new(lane: LaneId, items: impl IntoIterator<Item = Item>) -> Self {
        let items = items.into_iter().map(|item| (item, Outcome::Untried)).collect();
        Self { lane, items, ended: 0, goes_on: true, over: false }
    }

    /// The next record, if there is one and it may be tried.
    pub(super) fn next(&self) -> Option<&Item> {
        self.items.get(self.ended as usize).filter(|_| self.goes_on).map(|(item, _)| item)
    }

    /// The records that have not ended.
    pub(super) fn rest(&self) -> impl Iterator<Item = &Item> {
        self.items[self.ended as usize..].iter().map(|(item, _)| item)
    }

    /// A call for these many records begins. If it is cut off, nobody knows what it has done.
    pub(super) fn begin(&mut self, count: usize) {
        let begun = self.items[self.ended as usize..].iter_mut().take(count);
        begun.for_each(|(_, outcome)| *outcome = Outcome::Lost);
    }

    /// The next record has ended like this. Returns false if there is none.
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

    /// The next record is not tried, nor any after it.
    pub(super) fn stop(&mut self) {
        self.goes_on = false;
        self.take_back();
    }

    /// What was begun was taken back as a whole: it may be tried again.
    pub(super) fn take_back(&mut self) {
        let begun = self.items[self.ended as usize..].iter_mut();
        begun.for_each(|(_, outcome)| *outcome = Outcome::Untried);
    }

    /// Splits off what has ended since the last call, if anything has. A lane that may not go on is reported
    /// as a whole: what was not tried stays behind what was lost.
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
