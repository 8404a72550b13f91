//! One lane in memory: what is queued, whether it runs, whether it is stopped.

use std::sync::Arc;

use super::{stop::StopState, turns::Turns};
use crate::{
    delivery::work::Items,
    handler::Entry,
    record::{Lane, RecordId},
    rules::crashes::Care,
};

/// A lane in memory. Its table gives it a name and a place; all else is written by the station.
pub(super) struct LaneState {
    /// Never changes.
    pub(super) name: Lane,
    /// The hash of the name. Never changes.
    pub(super) hash: u64,
    /// Records that wait for their run, in their order.
    pub(super) queue: Items,
    /// Its handler, from the first record on.
    pub(super) entry: Option<Arc<Entry>>,
    /// A run of it is under way: from `take` to the report that ends it.
    pub(super) running: bool,
    /// It is among the ready ones.
    pub(super) ready: bool,
    /// What stops it, from the outcome that does to the write that ends it.
    pub(super) stop: Option<StopState>,
    /// Writes under way, of its records and of itself.
    pub(super) writes: u32,
    /// Those of them that hold a record.
    pub(super) holds: u32,
    /// Those of them that the database has refused: nothing runs before they are written.
    pub(super) refused: u32,
}

impl LaneState {
    pub(super) fn new(name: Lane, hash: u64) -> Self {
        Self {
            name,
            hash,
            queue: Items::new(),
            entry: None,
            running: false,
            ready: false,
            stop: None,
            writes: 0,
            holds: 0,
            refused: 0,
        }
    }

    /// The record at its head.
    pub(super) fn head(&self) -> Option<RecordId> {
        self.queue.first().map(|item| item.record.delivery.id)
    }

    /// Whether its next record runs by itself.
    pub(super) fn is_suspected(&self) -> bool {
        self.queue.first().is_some_and(|item| item.care != Care::Usual)
    }

    /// It goes on, but earlier records of it are on their way to be held: what a fetch brings of it now would
    /// overtake them.
    pub(super) fn would_overtake(&self) -> bool {
        self.stop.is_none() && self.holds > 0
    }

    /// Whether a run must wait for its writes. Settles keep the order of what they write, and the transaction of a
    /// handler is no settle: it would become durable before the failure, or the fallback, of the record before it.
    pub(super) fn waits_for_writes(&self) -> bool {
        self.writes > 0 && self.entry.as_ref().is_some_and(|entry| entry.form.is_transactional())
    }

    /// Whether it is to be put among the ready ones now.
    pub(super) fn becomes_ready(&mut self, turns: &Turns) -> bool {
        let Some(head) = self.queue.first() else { return false };
        let has_turn = head.care != Care::Alone || turns.is_of(head.record.delivery.id);
        let written = self.refused == 0 && !self.waits_for_writes();
        let may_run = (self.stop.is_none() || head.stops_lane) && has_turn && written;
        let becomes = !self.running && !self.ready && may_run;
        self.ready |= becomes;
        becomes
    }

    /// The items of a run, which begins.
    pub(super) fn take(&mut self, most: usize) -> Items {
        (self.ready, self.running) = (false, true);
        // A record that stops its lane runs alone: what follows depends on it.
        let most = if self.stop.is_some() || self.is_suspected() { 1 } else { most };
        match most < self.queue.len() {
            true => self.queue.drain(..most).collect(),
            false => std::mem::take(&mut self.queue),
        }
    }

    /// Whether nothing of it is in memory.
    pub(super) fn is_idle(&self) -> bool {
        let rests = !self.running && !self.ready && self.writes == 0;
        rests && self.queue.is_empty() && self.stop.is_none()
    }
}
