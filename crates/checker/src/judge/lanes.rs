//! Lanes: the records without an end, and what a later record must wait for.

use std::collections::{BTreeSet, HashMap};

use super::{
    Judge,
    names::Name,
    records::{Lane, Record, State},
};

#[derive(Debug, Default)]
pub(super) struct LaneState {
    /// Records without an end, except delayed ones that were never called.
    pub(super) open: BTreeSet<i64>,
    /// Those that no call of the present owner has finished.
    pub(super) waiting: BTreeSet<i64>,
    /// Calls that have not ended.
    pub(super) calls: Vec<u64>,
    /// The last time at which a held record was pending again.
    pub(super) released: Option<u64>,
}

impl LaneState {
    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty() && self.calls.is_empty()
    }
}

/// All lanes with an open record or call.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    all: HashMap<Lane, LaneState>,
    /// The partition of each key, and the lanes of each partition.
    pub(super) partitions: HashMap<Name, u16>,
    of_partition: HashMap<u16, BTreeSet<Lane>>,
}

impl Lanes {
    pub(super) fn get(&self, lane: Lane) -> Option<&LaneState> {
        self.all.get(&lane)
    }

    pub(super) fn of_partition(&self, partition: u16) -> impl Iterator<Item = Lane> {
        self.of_partition.get(&partition).into_iter().flatten().copied()
    }

    /// All lanes, in an order that is the same in each run.
    pub(super) fn sorted(&self) -> Vec<Lane> {
        let mut lanes: Vec<Lane> = self.all.keys().copied().collect();
        lanes.sort_unstable();
        lanes
    }

    fn with(&mut self, lane: Lane, change: impl FnOnce(&mut LaneState)) {
        let state = self.all.entry(lane).or_insert_with(|| {
            if let Some(partition) = self.partitions.get(&lane.0) {
                self.of_partition.entry(*partition).or_default().insert(lane);
            }
            LaneState::default()
        });
        change(state);
        if state.is_empty() {
            self.all.remove(&lane);
            if let Some(lanes) =
                self.partitions.get(&lane.0).and_then(|partition| self.of_partition.get_mut(partition))
            {
                lanes.remove(&lane);
            }
        }
    }

    pub(super) fn release(&mut self, lane: Lane, at: u64) {
        self.with(lane, |state| state.released = Some(at));
    }

    /// Whether the lane was released since this time.
    pub(super) fn is_released_since(&self, lane: Lane, at: u64) -> bool {
        self.get(lane).and_then(|state| state.released).is_some_and(|released| released > at)
    }

    pub(super) fn open_call(&mut self, lane: Lane, call: u64) {
        self.with(lane, |state| {
            if !state.calls.contains(&call) {
                state.calls.push(call);
            }
        });
    }

    pub(super) fn close_call(&mut self, lane: Lane, call: u64) {
        self.with(lane, |state| state.calls.retain(|open| *open != call));
    }
}

impl Judge {
    /// Adds a record to its lane, unless it is delayed.
    pub(super) fn enter_lane(&mut self, record: &Record) {
        let (id, rows) = (record.id, self.has_rows());
        if !record.delayed {
            self.lanes.with(record.lane, |lane| {
                if rows {
                    lane.open.insert(id);
                }
                if record.state != State::Done {
                    lane.waiting.insert(id);
                }
            });
            self.watch_lane(record.lane);
        }
    }

    /// Removes a record that has ended.
    pub(super) fn leave_lane(&mut self, record: &Record) {
        self.lanes.with(record.lane, |lane| {
            lane.open.remove(&record.id);
            lane.waiting.remove(&record.id);
        });
        self.watch_lane(record.lane);
    }

    /// Lets later records of the lane go on.
    pub(super) fn done(&mut self, id: i64) {
        let Some(record) = self.records.get_mut(id) else { return };
        record.state = State::Done;
        let (lane, event) = (record.lane, record.event);
        self.lanes.with(lane, |lane| {
            lane.waiting.remove(&id);
        });
        if !self.has_rows()
            && let Some(event) = self.writers.events.get_mut(&event)
        {
            event.open = event.open.saturating_sub(1);
        }
        self.watch_lane(lane);
    }

    /// Resets the successes of a partition that are not durable, which a new owner does not know.
    pub(super) fn start_afresh(&mut self, partition: u16) {
        if !self.has_rows() {
            return;
        }
        for lane in self.lanes.of_partition(partition).collect::<Vec<_>>() {
            let open: Vec<i64> =
                self.lanes.get(lane).map(|lane| lane.open.iter().copied().collect()).unwrap_or_default();
            for id in open {
                let Some(record) = self.records.get_mut(id).filter(|record| record.state == State::Done)
                else {
                    continue;
                };
                if record.exempt {
                    continue;
                }
                record.state = State::Redo;
                self.lanes.with(lane, |lane| {
                    lane.waiting.insert(id);
                });
            }
            self.watch_lane(lane);
        }
    }
}
