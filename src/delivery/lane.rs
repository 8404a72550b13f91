//! One lane in memory: what is queued, whether it runs, whether it stands still.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{flight::LaneRun, stops::StopState, turns::Turns};
use crate::{
    handler::Entry,
    ownership::Permit,
    record::{Record, RecordId},
    rules::crashes::Care,
};

/// A record in memory with its right to be worked on.
pub(super) struct Item {
    /// Shared with the call of its handler, which may outlast the item's place in its run.
    pub(super) record: Arc<Record>,
    pub(super) permit: Permit,
    /// This record has stopped its lane, and its turn has come again.
    pub(super) stops_lane: bool,
    /// What its process may risk with it.
    pub(super) care: Care,
}

/// Items of one lane, in their order. Of most keys there is one at a time, which needs no allocation.
pub(super) type Items = SmallVec<[Item; 1]>;

/// Work for one task.
pub(super) struct Run {
    pub(super) entry: Arc<Entry>,
    pub(super) lanes: SmallVec<[LaneRun; 1]>,
}

/// A lane in memory.
#[derive(Default)]
pub(super) struct LaneState {
    pub(super) queue: Items,
    pub(super) entry: Option<Arc<Entry>>,
    pub(super) running: bool,
    pub(super) waiting: bool,
    pub(super) stop: Option<StopState>,
    /// Holds on their way to the database.
    pub(super) holds: usize,
    /// Outcomes that the database refuses: nothing runs before they are written.
    pub(super) refused: usize,
}

impl LaneState {
    /// The record at its head.
    pub(super) fn head(&self) -> Option<RecordId> {
        self.queue.first().map(|item| item.record.delivery.id)
    }

    /// Whether its next record runs by itself.
    pub(super) fn is_suspected(&self) -> bool {
        self.queue.first().is_some_and(|item| item.care != Care::Usual)
    }

    /// Whether it is to be put among the ready ones now.
    pub(super) fn becomes_ready(&mut self, turns: &Turns) -> bool {
        let has_turn = |item: &Item| item.care != Care::Alone || turns.is_of(item.record.delivery.id);
        let may_run =
            self.queue.first().is_some_and(|item| (self.stop.is_none() || item.stops_lane) && has_turn(item));
        let may_run = may_run && self.refused == 0;
        let becomes = !self.running && !self.waiting && !self.queue.is_empty() && may_run;
        self.waiting |= becomes;
        becomes
    }

    /// The items of a run, which begins.
    pub(super) fn take(&mut self, most: usize) -> Items {
        (self.waiting, self.running) = (false, true);
        // A record that stops its lane runs alone: what follows depends on it.
        let most = if self.stop.is_some() || self.is_suspected() { 1 } else { most };
        match most < self.queue.len() {
            true => self.queue.drain(..most).collect(),
            false => std::mem::take(&mut self.queue),
        }
    }

    /// Whether its runs need a guard each.
    pub(super) fn is_transactional(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.form.is_transactional())
    }

    pub(super) fn is_idle(&self) -> bool {
        let still = !self.running && !self.waiting;
        self.queue.is_empty() && still && self.stop.is_none() && self.holds == 0 && self.refused == 0
    }
}
