//! One lane in memory: its queue, its run, its stop.

use std::sync::Arc;

use super::{stop::StopState, turns::Turns};
use crate::{
    delivery::work::Items,
    handler::Entry,
    record::{Lane, RecordId},
    rules::crashes::Care,
};

/// A lane in memory. The table writes the name and the hash, the station all other fields.
pub(super) struct LaneState {
    /// Never changes.
    pub(super) name: Lane,
    /// The hash of the name. Never changes.
    pub(super) hash: u64,
    /// Records that wait for their run, in id order. Added by `admit`, taken by a run, a stop or a cut.
    pub(super) queue: Items,
    /// The entry of its handler. Set with the first queued record.
    pub(super) entry: Option<Arc<Entry>>,
    /// Whether a run of the lane is under way. Set by `take`, cleared by the report that ends the run.
    pub(super) running: bool,
    /// Whether the lane is in a queue of ready lanes. Set by `becomes_ready`, cleared when the lane is
    /// popped.
    pub(super) ready: bool,
    /// The stop of the lane. Set by the outcome that stops it or by a list, cleared when the lane goes on.
    pub(super) stop: Option<StopState>,
    /// Writes under way, of its records and of the lane itself.
    pub(super) writes: u32,
    /// Those of the writes that hold a record.
    pub(super) holds: u32,
    /// Those of the writes that the database has refused. While there are any, no record of the lane runs.
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

    /// The id of the first queued record.
    pub(super) fn head(&self) -> Option<RecordId> {
        self.queue.first().map(|item| item.record.delivery.id)
    }

    /// Whether the next record of the lane runs by itself, because it is suspected.
    pub(super) fn is_suspected(&self) -> bool {
        self.queue.first().is_some_and(|item| item.care != Care::Usual)
    }

    /// Whether the lane goes on while earlier records of it are about to be held. A record admitted now would
    /// overtake them.
    pub(super) fn would_overtake(&self) -> bool {
        self.stop.is_none() && self.holds > 0
    }

    /// Whether a run must wait for the writes of the lane. Settles keep the order of their writes, but the
    /// transaction of a handler is no settle: it could become durable before the failure of the record before
    /// it.
    pub(super) fn waits_for_writes(&self) -> bool {
        self.writes > 0 && self.entry.as_ref().is_some_and(|entry| entry.form.is_transactional())
    }

    /// Makes the lane ready if it may run. Returns whether it was not ready before.
    pub(super) fn becomes_ready(&mut self, turns: &Turns) -> bool {
        let Some(head) = self.queue.first() else { return false };
        let has_turn = head.care != Care::Alone || turns.is_of(head.record.delivery.id);
        let written = self.refused == 0 && !self.waits_for_writes();
        let may_run = (self.stop.is_none() || head.stops_lane) && has_turn && written;
        let becomes = !self.running && !self.ready && may_run;
        self.ready |= becomes;
        becomes
    }

    /// Begins a run. Returns its records, at most `most`.
    pub(super) fn take(&mut self, most: usize) -> Items {
        (self.ready, self.running) = (false, true);
        // A record that stops its lane runs alone, because its outcome decides what follows.
        let most = if self.stop.is_some() || self.is_suspected() { 1 } else { most };
        match most < self.queue.len() {
            true => self.queue.drain(..most).collect(),
            false => std::mem::take(&mut self.queue),
        }
    }

    /// Whether nothing of the lane is in memory: no record, no run, no write, no stop.
    pub(super) fn is_idle(&self) -> bool {
        let rests = !self.running && !self.ready && self.writes == 0;
        rests && self.queue.is_empty() && self.stop.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{delivery::fixtures, record::StopReason};

    /// The ids that a run of at most `most` records takes of five, and those that stay.
    fn taken(most: usize, change: impl Fn(&mut LaneState)) -> (Vec<RecordId>, Vec<RecordId>) {
        let ownership = fixtures::owning_all();
        let mut lane = LaneState::new(fixtures::record(1, "a").lane(), 0);
        lane.queue = (1..=5).map(|id| fixtures::item(&ownership, fixtures::record(id, "a"))).collect();
        change(&mut lane);
        let items = lane.take(most);
        assert!(lane.running && !lane.ready && !lane.is_idle());
        let ids = |items: &Items| items.iter().map(|item| item.id()).collect();
        (ids(&items), ids(&lane.queue))
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_takes_the_first_records_and_those_alone_that_need_it() {
        assert_eq!(taken(2, |_| {}), (vec![1, 2], vec![3, 4, 5]));
        assert_eq!(taken(5, |_| {}), (vec![1, 2, 3, 4, 5], vec![]));
        assert_eq!(taken(9, |_| {}), (vec![1, 2, 3, 4, 5], vec![]));
        let stopped = |lane: &mut LaneState| {
            lane.stop = Some(StopState::by_this_instance(1, StopReason::Retrying));
        };
        assert_eq!(taken(9, stopped), (vec![1], vec![2, 3, 4, 5]), "its outcome decides what follows");
        let suspected = |lane: &mut LaneState| lane.queue[0].care = Care::Alone;
        assert_eq!(taken(9, suspected), (vec![1], vec![2, 3, 4, 5]), "it may end the process");
    }
}
