//! The lanes in memory: what is queued, what runs, what stands still. No async, no IO.

use std::{
    collections::{HashSet, hash_map::Entry},
    sync::Arc,
};

use smallvec::{SmallVec, smallvec};

use super::{
    flight::LaneRun,
    lane::{Item, Items, LaneState, Run},
    ready::Ready,
    stops::StopState,
    turns::Turns,
};
use crate::{
    handler::Entry as HandlerEntry,
    partition::PartitionSet,
    record::{Lane, Record, RecordId, Stop},
    rules::crashes::Care,
};

/// Looked up several times a record, and never by an attacker's choice of more than a few thousand.
type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// Records that one run of a lane takes at most, unless its handler takes batches.
const RUN_LENGTH: usize = 32;

/// How a lane stands.
#[derive(Clone, Copy, Default)]
pub(super) struct Standing {
    pub(super) stop: Option<StopState>,
    /// The lane goes on, but earlier records of it are on their way to be held: what a fetch brings
    /// of it now would overtake them.
    pub(super) would_overtake: bool,
}

/// All lanes with something in memory.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: HashMap<Lane, LaneState>,
    ready: Ready,
    /// Records that run alone.
    turns: Turns,
    /// Runs under way of handlers that are not transactional.
    plain_runs: usize,
    /// Records in memory: queued, running or being written. Each with the bytes of its payload.
    known: HashMap<RecordId, usize>,
    bytes: usize,
    tainted: HashSet<Lane>,
    fetching: bool,
    epoch: u64,
    /// Something that was fetched may be pending again, or something older.
    given_back: bool,
}

impl Lanes {
    /// A fetch begins. Returns its epoch and what it must leave out.
    pub(super) fn begin_fetch(&mut self) -> (u64, Vec<RecordId>) {
        self.epoch += 1;
        self.fetching = true;
        self.tainted.clear();
        (self.epoch, self.known.keys().copied().collect())
    }

    /// The fetch has been taken in.
    pub(super) fn end_fetch(&mut self) {
        self.fetching = false;
        self.tainted.clear();
    }

    /// Whether a record was given back to the database, or a lane released, since the last call.
    pub(super) fn take_given_back(&mut self) -> bool {
        std::mem::take(&mut self.given_back)
    }

    /// A record that was fetched is not taken.
    pub(super) fn leave_behind(&mut self) {
        self.given_back = true;
    }

    /// Whether rows of this lane in the fetch under way no longer count.
    pub(super) fn is_tainted(&self, lane: &Lane) -> bool {
        self.tainted.contains(lane)
    }

    pub(super) fn taint(&mut self, lane: &Lane) {
        if self.fetching {
            self.tainted.insert(lane.clone());
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.known.len()
    }

    pub(super) fn in_flight_bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn knows(&self, id: RecordId) -> bool {
        self.known.contains_key(&id)
    }

    /// Counts a record as in memory.
    pub(super) fn note(&mut self, record: &Record) {
        let bytes = record.payload.len();
        if self.known.insert(record.delivery.id, bytes).is_none() {
            self.bytes += bytes;
        }
    }

    /// Its outcome is durable.
    pub(super) fn forget(&mut self, id: RecordId) {
        self.turns.remove(id);
        if let Some(bytes) = self.known.remove(&id) {
            self.bytes -= bytes;
        }
    }

    /// It is given up here: the next fetch may bring it.
    pub(super) fn give_back(&mut self, id: RecordId) {
        self.forget(id);
        self.given_back = true;
    }

    /// A record of the lane is about to be held.
    pub(super) fn hold_begins(&mut self, lane: &Lane) {
        self.lanes.entry(lane.clone()).or_default().holds += 1;
    }

    /// The hold was written or refused. A fetch under way may bring later records without it. Returns
    /// whether the lane has gone on meanwhile, so that it is to be looked at again.
    pub(super) fn hold_ends(&mut self, lane: &Lane) -> bool {
        self.taint(lane);
        let Some(state) = self.lanes.get_mut(lane) else { return false };
        state.holds = state.holds.saturating_sub(1);
        let goes_on = state.stop.is_none();
        self.drop_if_idle(lane);
        goes_on
    }

    /// An outcome of the lane was refused.
    pub(super) fn wait_for_outcome(&mut self, lane: &Lane) {
        self.lanes.entry(lane.clone()).or_default().refused += 1;
    }

    /// It is durable at last, or given up.
    pub(super) fn outcome_goes_on(&mut self, lane: &Lane) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        state.refused = state.refused.saturating_sub(1);
        if state.becomes_ready(&self.turns) {
            let transactional = state.is_transactional();
            self.ready.push(transactional, lane.clone());
        }
        self.drop_if_idle(lane);
    }

    /// What a record of the lane that comes now must know.
    pub(super) fn standing(&self, lane: &Lane) -> Standing {
        self.lanes.get(lane).map_or(Standing::default(), |state| Standing {
            stop: state.stop,
            would_overtake: state.stop.is_none() && state.holds > 0,
        })
    }

    pub(super) fn stop_of(&self, lane: &Lane) -> Option<StopState> {
        self.lanes.get(lane).and_then(|state| state.stop)
    }

    /// Queues a record in id order.
    pub(super) fn push(&mut self, lane: Lane, entry: &Arc<HandlerEntry>, item: Item) {
        self.note(&item.record);
        if item.care == Care::Alone {
            self.turns.add(item.record.delivery.id, lane.clone());
        }
        let state = self.lanes.entry(lane.clone()).or_default();
        state.entry.get_or_insert_with(|| Arc::clone(entry));
        let id = item.record.delivery.id;
        let place = state.queue.iter().rposition(|queued| queued.record.delivery.id < id);
        state.queue.insert(place.map_or(0, |place| place + 1), item);
        if state.becomes_ready(&self.turns) {
            self.ready.push(entry.form.is_transactional(), lane);
        }
    }

    /// Puts records that were not tried back to the head of their lane.
    pub(super) fn put_back(&mut self, lane: &Lane, items: Vec<Item>) {
        match self.lanes.get_mut(lane) {
            Some(state) => state.queue.insert_many(0, items),
            None => items.iter().for_each(|item| self.give_back(item.record.delivery.id)),
        }
    }

    /// Whether a lane has no more records in memory than this, and none on their way to be held.
    pub(super) fn has_few(&self, lane: &Lane, most: usize) -> bool {
        self.lanes.get(lane).is_none_or(|state| state.queue.len() <= most && state.holds == 0)
    }

    /// Runs under way of handlers that are not transactional.
    pub(super) fn plain_runs(&self) -> usize {
        self.plain_runs
    }

    /// The next run of a kind, if a lane is ready.
    pub(super) fn next_run(&mut self, transactional: bool) -> Option<Run> {
        self.pass_turn_on();
        let (lane, state) = loop {
            let lane = self.ready.pop(transactional)?;
            // Gone, or emptied or refused since it became ready.
            match self.lanes.get_mut(&lane) {
                Some(state) if !state.queue.is_empty() && state.refused == 0 => break (lane, state),
                Some(state) => state.waiting = false,
                None => {}
            }
        };
        let entry = state.entry.clone()?;
        let (size, mixed) = entry.form.batch().unwrap_or((RUN_LENGTH, false));
        let mixed = mixed && !state.is_suspected();
        let mut lanes: SmallVec<[LaneRun; 1]> = smallvec![LaneRun::new(lane, state.take(size))];
        let mut taken = lanes[0].items.len();
        while mixed && taken < size {
            let Some(lane) = self.ready.pop_of(transactional, &entry.id) else { break };
            let Some(state) = self.lanes.get_mut(&lane) else { continue };
            if state.refused > 0 {
                state.waiting = false;
                continue;
            }
            if state.is_suspected() {
                self.ready.push(transactional, lane);
                break;
            }
            let items = state.take(size - taken);
            taken += items.len();
            lanes.push(LaneRun::new(lane, items));
        }
        self.plain_runs += usize::from(!transactional);
        Some(Run { entry, lanes })
    }

    /// One of the records that run alone has its turn, if none has.
    fn pass_turn_on(&mut self) {
        let lanes = &self.lanes;
        let passed = self.turns.pass_on(|lane| lanes.get(lane).and_then(LaneState::head));
        let Some(lane) = passed else { return };
        if let Some(state) = self.lanes.get_mut(&lane)
            && state.becomes_ready(&self.turns)
        {
            self.ready.push(state.is_transactional(), lane);
        }
    }

    /// A run has ended; its lanes may run again.
    pub(super) fn end_run(&mut self, transactional: bool) {
        self.plain_runs = self.plain_runs.saturating_sub(usize::from(!transactional));
    }

    /// The lane's part of a run has been taken in.
    pub(super) fn end_lane(&mut self, lane: Lane) {
        if let Entry::Occupied(mut state) = self.lanes.entry(lane.clone()) {
            state.get_mut().running = false;
            if state.get_mut().becomes_ready(&self.turns) {
                let transactional = state.get().is_transactional();
                self.ready.push(transactional, lane);
            } else if state.get().is_idle() {
                state.remove();
            }
        }
    }

    fn drop_if_idle(&mut self, lane: &Lane) {
        if self.lanes.get(lane).is_some_and(LaneState::is_idle) {
            self.lanes.remove(lane);
        }
    }

    /// The lane stands still. Returns what was queued behind.
    pub(super) fn stop(&mut self, lane: &Lane, stop: StopState) -> Vec<Item> {
        let state = self.lanes.entry(lane.clone()).or_default();
        state.stop = Some(stop);
        state.queue.drain(..).collect()
    }

    /// The row of the lane is written.
    pub(super) fn stop_is_durable(&mut self, lane: &Lane, record: RecordId) {
        let epoch = self.epoch;
        let stop = self.lanes.get_mut(lane).and_then(|state| state.stop.as_mut());
        if let Some(stop) = stop.filter(|stop| stop.record == record) {
            stop.durable_since = Some(epoch);
        }
    }

    /// This record stops its lane no more: the lane goes on, from the head of what is pending in the
    /// database, unless a later record has stopped it meanwhile.
    pub(super) fn resume(&mut self, lane: &Lane, record: RecordId) -> bool {
        let resumes = self.stop_of(lane).is_some_and(|stop| stop.record == record);
        if resumes {
            self.forget_stop(lane);
        }
        resumes
    }

    fn forget_stop(&mut self, lane: &Lane) {
        self.taint(lane);
        self.given_back = true;
        if let Some(state) = self.lanes.get_mut(lane) {
            state.stop = None;
        }
        self.drop_if_idle(lane);
    }

    /// Gives up what is queued in a lane; the database still has it.
    pub(super) fn abandon(&mut self, lane: &Lane) {
        self.taint(lane);
        let queued: Vec<Item> =
            self.lanes.get_mut(lane).map(|state| state.queue.drain(..).collect()).unwrap_or_default();
        for item in queued {
            self.give_back(item.record.delivery.id);
        }
        self.drop_if_idle(lane);
    }

    /// Cuts queues of so many records to half of that. Returns where that was.
    pub(super) fn cut_queues(&mut self, share: usize) -> PartitionSet {
        let mut cut = PartitionSet::EMPTY;
        let long = self.lanes.iter_mut().filter(|(_, state)| state.queue.len() >= share);
        let long: Vec<(Lane, Items)> =
            long.map(|(lane, state)| (lane.clone(), state.queue.drain(share / 2..).collect())).collect();
        for (lane, rest) in long {
            self.taint(&lane);
            rest.iter().for_each(|item| self.give_back(item.record.delivery.id));
            cut.insert(lane.partition);
        }
        cut
    }

    /// Gives up the queues and the stops of lanes that may not be worked on any more.
    pub(super) fn abandon_where(&mut self, closed: impl Fn(&Lane) -> bool) {
        let lanes: Vec<Lane> = self.lanes.keys().filter(|lane| closed(lane)).cloned().collect();
        for lane in lanes {
            self.forget_stop(&lane);
            self.abandon(&lane);
        }
    }

    /// Takes over a list of stops, read at the start of the fetch of this epoch, for the partitions
    /// that `covers`. Returns where a lane was released: the look may have left out records of it that
    /// are pending again, so it is to be looked at once more.
    pub(super) fn reconcile(
        &mut self,
        stops: &[Stop],
        epoch: u64,
        covers: impl Fn(&Lane) -> bool,
    ) -> PartitionSet {
        let listed = stops.iter().filter(|stop| stop.stands_still());
        let listed: HashMap<&Lane, &Stop> = listed.map(|stop| (&stop.lane, stop)).collect();
        let released = self.lanes.iter().filter(|(lane, state)| {
            covers(lane)
                && !listed.contains_key(*lane)
                && state.stop.is_some_and(|stop| stop.is_refuted_by(epoch))
        });
        let released: Vec<Lane> = released.map(|(lane, _)| lane.clone()).collect();
        released.iter().for_each(|lane| self.forget_stop(lane));
        for stop in stops.iter().filter(|stop| stop.stands_still()) {
            let state = self.lanes.entry(stop.lane.clone()).or_default();
            let (durable_since, own) = (Some(epoch.saturating_sub(1)), false);
            let Stop { record, reason, .. } = *stop;
            state.stop.get_or_insert(StopState { record, reason, durable_since, own });
        }
        released.iter().map(|lane| lane.partition).collect()
    }

    /// Where a lane waits for a person or for another build.
    pub(super) fn waiting_for_others(&self) -> PartitionSet {
        use crate::record::StopReason::{Blocked, Unroutable};
        let outside = |stop: StopState| matches!(stop.reason, Blocked | Unroutable);
        let waiting = self.lanes.iter().filter(|(_, state)| state.stop.is_some_and(outside));
        waiting.map(|(lane, _)| lane.partition).collect()
    }
}

#[cfg(test)]
mod tests;
