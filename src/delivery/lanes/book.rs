//! The book of the lanes: all state of the lanes station, and the steps that change it.

use std::time::Duration;

use super::{
    fetches::Fetches, lane::LaneState, memory::Memory, ready::Ready, releases::Releases, stop::StopState,
    suspects::Suspects, table::LaneTable, wishes::Wishes,
};
use crate::{
    delivery::{
        shares::Shares,
        work::{Item, Items, LaneId, Origin, Write},
    },
    ownership::Permit,
    partition::{Partition, PartitionSet},
    record::{Change, OnFailure, Record, RecordId, Settlement, StopReason},
    telemetry::Signal,
};

/// The state of the lanes station.
pub(super) struct Book {
    /// The lanes in memory. Added by `admit` and the lists of stops, removed once idle.
    pub(super) table: LaneTable,
    /// The lanes that may run. Offered whenever a lane may have become ready, popped by `next_run`.
    pub(super) ready: Ready,
    /// The records in memory. Added by `admit`, removed when their outcome is durable or they are requeued.
    pub(super) memory: Memory,
    /// The lanes whose rows in the fetch under way are stale. Begun and ended by the dispatcher with each
    /// fetch.
    pub(super) fetches: Fetches,
    /// Lanes whose held records return in steps. Written from the lists of stops, until a list lacks the
    /// lane.
    pub(super) releases: Releases,
    /// Records and partitions that may have crashed earlier owners. Written from the lists of suspicions.
    pub(super) suspects: Suspects,
    /// What the lanes want of other stations. Taken by the dispatcher after each event.
    pub(super) wishes: Wishes,
}

impl Book {
    pub(super) fn new(max_crashes: u32, shares: Shares) -> Self {
        Self {
            table: LaneTable::default(),
            memory: Memory::new(shares.limits()),
            ready: Ready::new(shares),
            fetches: Fetches::default(),
            releases: Releases::default(),
            suspects: Suspects::new(max_crashes),
            wishes: Wishes::default(),
        }
    }

    /// Stops the lane at this record: the queued records are held behind it.
    pub(super) fn stop(&mut self, lane: LaneId, record: RecordId, reason: StopReason) {
        let Some(state) = self.table.get_mut(lane) else { return };
        state.stop = Some(StopState::by_this_instance(record, reason));
        let queued = std::mem::take(&mut state.queue);
        if !self.releases.is_empty()
            && let Some(release) = self.releases.end(&state.name)
        {
            self.write(lane, (release.record, 0), Change::StopRelease { by: record }, None);
        }
        for item in queued {
            self.hold(lane, item, record);
        }
    }

    pub(super) fn hold(&mut self, lane: LaneId, item: Item, behind: RecordId) {
        self.write(lane, (item.id(), item.record.failures()), Change::Hold { behind }, Some(item.permit));
    }

    pub(super) fn write(
        &mut self,
        lane: LaneId,
        (id, failures): (RecordId, u32),
        change: Change,
        permit: Option<Permit>,
    ) {
        if let Some(state) = self.table.get_mut(lane) {
            state.writes += 1;
            state.holds += u32::from(matches!(change, Change::Hold { .. }));
        }
        let settlement = Settlement { id, failures, change };
        let origin = Origin { lane, permit, pause: Duration::ZERO };
        self.wishes.writes.push(Write { settlement, origin });
    }

    /// A write of the lane is durable or given up. `was_refused`: the database had refused it before.
    pub(super) fn write_ends(&mut self, lane: LaneId, change: &Change, was_refused: bool) {
        let Some(state) = self.table.get_mut(lane) else { return };
        state.writes = state.writes.saturating_sub(1);
        state.holds = state.holds.saturating_sub(u32::from(matches!(change, Change::Hold { .. })));
        state.refused = state.refused.saturating_sub(u32::from(was_refused));
        if was_refused || state.writes == 0 {
            self.ready.offer(state, lane);
        }
    }

    pub(super) fn stop_of(&self, lane: LaneId) -> Option<StopState> {
        self.table.get(lane).and_then(|state| state.stop)
    }

    pub(super) fn stop_is_durable(&mut self, lane: LaneId, record: RecordId) {
        let seq = self.fetches.seq();
        let stop = self.table.get_mut(lane).and_then(|state| state.stop.as_mut());
        if let Some(stop) = stop.filter(|stop| stop.record == record) {
            stop.durable_since = Some(seq);
        }
    }

    /// The record no longer stops its lane. Unless another record stops the lane, the lane goes on from its
    /// head in the database.
    pub(super) fn resume(&mut self, lane: LaneId, record: RecordId) {
        if self.stop_of(lane).is_some_and(|stop| stop.record == record) {
            self.end_stop(lane);
            self.wishes.fetch = true;
        }
    }

    pub(super) fn end_stop(&mut self, lane: LaneId) {
        match self.table.get_mut(lane) {
            Some(state) => {
                self.wishes.missed.insert(state.name.partition);
                self.fetches.mark_stale(&state.name);
                state.stop = None;
            }
            None => self.wishes.missed = PartitionSet::ALL,
        }
        self.table.remove_if_idle(lane);
    }

    /// The outcome of the record is durable.
    pub(super) fn end(&mut self, id: RecordId) {
        self.remove(id);
        if self.suspects.end(id) {
            self.wishes.tracks_ended.push(id);
        }
    }

    pub(super) fn remove(&mut self, id: RecordId) -> Option<Partition> {
        self.ready.remove(id);
        self.memory.remove(id)
    }

    /// Removes the record from memory. The next fetch may bring it again.
    pub(super) fn requeue(&mut self, id: RecordId) {
        match self.remove(id) {
            Some(partition) => self.wishes.missed.insert(partition),
            None => self.wishes.missed = PartitionSet::ALL,
        }
    }

    /// The transaction of the handler has completed the record.
    pub(super) fn written_by_its_handler(&mut self, lane: LaneId, item: &Item) {
        let id = item.id();
        self.remove(id);
        self.suspects.end(id);
        if item.stops_lane {
            self.resume(lane, id);
            self.wishes.read_stops_of([item.record.delivery.partition].into_iter().collect());
        }
    }

    /// Requeues the queued records of a lane; they are still in the database.
    pub(super) fn abandon(&mut self, lane: LaneId) {
        let Some(state) = self.table.get_mut(lane) else { return };
        self.fetches.mark_stale(&state.name);
        let queued = std::mem::take(&mut state.queue);
        queued.iter().for_each(|item| self.requeue(item.id()));
        self.table.remove_if_idle(lane);
    }

    /// Cuts queues of at least `share` records to half of that. Returns their partitions.
    pub(super) fn cut_queues(&mut self, share: usize) -> PartitionSet {
        let long = self.table.iter().filter(|(_, state)| state.queue.len() >= share);
        let long: Vec<LaneId> = long.map(|(lane, _)| lane).collect();
        let mut cut = PartitionSet::EMPTY;
        for lane in long {
            let Some(state) = self.table.get_mut(lane) else { continue };
            self.fetches.mark_stale(&state.name);
            cut.insert(state.name.partition);
            let rest: Items = state.queue.drain(share / 2..).collect();
            rest.iter().for_each(|item| self.requeue(item.id()));
        }
        cut
    }

    /// Requeues queued records of a handler until its records take at most `share` places in memory. The lanes
    /// with the oldest heads keep their queues.
    pub(super) fn cut_handler(&mut self, number: usize, share: usize) {
        let is_of = |state: &LaneState| state.entry.as_ref().is_some_and(|entry| entry.number == number);
        let lanes = self.table.iter().filter(|(_, state)| is_of(state));
        let mut lanes: Vec<_> = lanes.filter_map(|(lane, state)| Some((state.head()?, lane))).collect();
        lanes.sort_unstable_by_key(|(head, _)| *head);
        while self.memory.of_handler(number) > share
            && let Some((_, lane)) = lanes.pop()
        {
            self.abandon(lane);
        }
    }

    /// Applies a durable change to its lane.
    pub(super) fn lane_settled(&mut self, lane: LaneId, id: RecordId, change: &Change, releasing: bool) {
        let of = self.table.get(lane).map(|state| state.name.partition);
        match change {
            Change::Complete | Change::StopRelease { .. } => {}
            Change::Resume | Change::CompleteAndResume | Change::Fail { lane: OnFailure::Continue, .. } => {
                // Two lists of stops may have asked for the same resume. When the second is durable, the lane
                // may go on already, or the record may have stopped it again, with a write that is not
                // durable yet.
                let came_later = |stop: StopState| stop.durable_since.is_none();
                if !(matches!(change, Change::Resume) && self.stop_of(lane).is_some_and(came_later)) {
                    self.resume(lane, id);
                }
                if releasing {
                    self.wishes.read_stops_of(of.into_iter().collect());
                }
            }
            Change::Release => {
                if let Some(state) = self.table.get(lane) {
                    self.releases.step_ends(&state.name);
                    self.fetches.mark_stale(&state.name);
                }
                self.wishes.read_stops_of(of.into_iter().collect());
            }
            Change::Retry { delay, stop, .. } => {
                if *stop {
                    self.stop_is_durable(lane, id);
                }
                self.wishes.due_in.push(*delay);
            }
            Change::Fail { lane: OnFailure::Block, .. } | Change::Unroutable => {
                self.stop_is_durable(lane, id);
            }
            Change::Hold { .. } => {
                let Some(state) = self.table.get(lane) else { return };
                self.fetches.mark_stale(&state.name);
                // A handler's own transaction, which is no settle, has let the lane go on meanwhile. The held
                // record is pending again, and fetches since then have left it out and may have gone past it.
                if state.stop.is_none() {
                    of.into_iter().for_each(|partition| self.wishes.missed.insert(partition));
                    self.wishes.fetch = true;
                }
            }
        }
    }

    /// Stops the lane at a record without a handler in this build.
    pub(super) fn stop_as_unroutable(&mut self, lane: LaneId, record: &Record, permit: Permit) {
        let record_type = record.delivery.record_type.to_string();
        let id = record.delivery.id;
        self.wishes.signals.push(Signal::Unroutable { record: id, lane: record.lane(), record_type });
        self.stop(lane, id, StopReason::Unroutable);
        self.write(lane, (id, record.failures()), Change::Unroutable, Some(permit));
    }
}
