//! The lanes with queued records and without a run, in the order in which they became ready.

use std::{collections::VecDeque, sync::Arc};

use smallvec::{SmallVec, smallvec};

use tokio::time::Instant;

use super::{lane::LaneState, limits::Limits, table::LaneTable, turns::Turns};
use crate::{
    delivery::{
        outcome::{LaneRun, Run},
        shares::{Shares, Vacancy},
        work::{Item, Items, LaneId},
    },
    handler::Entry,
    record::RecordId,
    rules::crashes::Care,
};

/// The most records per run of a lane, unless its handler takes batches.
const RUN_LENGTH: usize = 32;

/// The lanes that may run.
pub(super) struct Ready {
    /// What the runs of the handlers take. Raised by `next_run`, lowered by `land`.
    shares: Shares,
    /// Lanes of other handlers. Pushed when a lane becomes ready, popped by `next_run`.
    plain: VecDeque<LaneId>,
    /// Lanes of transactional handlers, pushed and popped in the same way. They wait apart, because each of
    /// their runs needs a fence row, and no other lane is to wait for one.
    transactional: VecDeque<LaneId>,
    /// Lanes of handlers with limits or with their share of runs, which wait apart too.
    limits: Limits,
    /// The turns of the records that run alone.
    turns: Turns,
}

impl Ready {
    pub(super) fn new(shares: Shares) -> Self {
        let (plain, transactional) = Default::default();
        Self { shares, plain, transactional, limits: Limits::default(), turns: Turns::default() }
    }

    /// Queues a record in id order.
    pub(super) fn push(&mut self, table: &mut LaneTable, lane: LaneId, entry: &Arc<Entry>, item: Item) {
        let id = item.id();
        if item.care == Care::Alone {
            self.turns.add(id, lane);
        }
        let Some(state) = table.get_mut(lane) else { return };
        state.entry.get_or_insert_with(|| Arc::clone(entry));
        let place = state.queue.iter().rposition(|queued| queued.id() < id);
        state.queue.insert(place.map_or(0, |place| place + 1), item);
        self.offer(state, lane);
    }

    /// Makes a lane ready if it may run.
    pub(super) fn offer(&mut self, state: &mut LaneState, lane: LaneId) {
        if state.becomes_ready(&self.turns)
            && let Some(entry) = &state.entry
        {
            self.queue(entry).push_back(lane);
        }
    }

    /// The record has left memory.
    pub(super) fn remove(&mut self, record: RecordId) {
        self.turns.remove(record);
    }

    /// The next run, if a lane is ready whose handler may begin one.
    pub(super) fn next_run(&mut self, table: &mut LaneTable, vacancy: Vacancy, now: Instant) -> Option<Run> {
        self.pass_turn_on(table);
        let (lane, entry, items) = loop {
            let lane = match self.limits.next(&self.shares, vacancy, now) {
                Some(lane) => lane,
                None => self.next_unlimited(table, vacancy)?,
            };
            let longest_run = |entry: &Entry| self.shares.longest_run(entry.number, vacancy);
            if let Some((entry, items)) = take(table, lane, longest_run) {
                break (lane, entry, items);
            }
        };
        self.limits.begin(entry.number, now);
        let mut lanes: SmallVec<[LaneRun; 1]> = smallvec![LaneRun::new(lane, items)];
        if let Some((size, true)) = entry.form.batch() {
            self.fill_mixed(table, &entry, size, &mut lanes);
        }
        let run = Run::new(entry, lanes);
        self.shares.begin(&run);
        Some(run)
    }

    /// A run was reported, or a part of it.
    pub(super) fn land(&mut self, run: &Run) {
        self.shares.land(run);
    }

    /// When the next waiting lane may run, if only its rate delays it.
    pub(super) fn next_start(&self) -> Option<Instant> {
        self.limits.next_start(&self.shares)
    }

    /// The next lane of a handler that has neither a limit nor its share of runs.
    fn next_unlimited(&mut self, table: &LaneTable, vacancy: Vacancy) -> Option<LaneId> {
        loop {
            let lane = self.of(vacancy.transactional).pop_front()?;
            if self.shares.is_alone() {
                return Some(lane);
            }
            let entry = table.get(lane).and_then(|state| state.entry.as_ref());
            match entry {
                Some(entry) if self.shares.longest_run(entry.number, vacancy) == 0 => {
                    self.limits.queue_apart(entry).push_back(lane);
                }
                _ => return Some(lane),
            }
        }
    }

    /// Adds other lanes of the same handler to a batch, unless a record of the batch runs by itself.
    fn fill_mixed(
        &mut self,
        table: &mut LaneTable,
        entry: &Arc<Entry>,
        size: usize,
        lanes: &mut SmallVec<[LaneRun; 1]>,
    ) {
        let suspected = lanes[0].items.iter().any(|(item, _)| item.care != Care::Usual);
        let mut left = size.saturating_sub(lanes[0].items.len());
        while left > 0 && !suspected {
            let waiting = self.queue(entry);
            let is_same = |lane: &LaneId| {
                let state = table.get(*lane);
                let same = |state: &LaneState| state.entry.as_ref().is_some_and(|of| Arc::ptr_eq(of, entry));
                state.is_some_and(|state| same(state) && !state.is_suspected())
            };
            let Some(place) = waiting.iter().position(is_same) else { return };
            let Some(lane) = waiting.remove(place) else { return };
            let Some(state) = table.get_mut(lane) else { continue };
            if state.refused > 0 {
                state.ready = false;
                continue;
            }
            let items = state.take(left);
            left -= items.len();
            lanes.push(LaneRun::new(lane, items));
        }
    }

    /// If no record that runs alone has its turn, the next one gets it.
    fn pass_turn_on(&mut self, table: &mut LaneTable) {
        let passed = self.turns.pass_on(|lane| table.get(lane).and_then(LaneState::head));
        if let Some(lane) = passed
            && let Some(state) = table.get_mut(lane)
        {
            self.offer(state, lane);
        }
    }

    /// The queue of ready lanes of this handler.
    fn queue(&mut self, entry: &Entry) -> &mut VecDeque<LaneId> {
        let Self { plain, transactional, limits, .. } = self;
        limits.queue(entry).unwrap_or(if entry.form.is_transactional() { transactional } else { plain })
    }

    fn of(&mut self, transactional: bool) -> &mut VecDeque<LaneId> {
        if transactional { &mut self.transactional } else { &mut self.plain }
    }
}

/// The records of the next run of a lane. `None` if the lane was emptied or refused since it became ready.
fn take(
    table: &mut LaneTable,
    lane: LaneId,
    longest_run: impl Fn(&Entry) -> usize,
) -> Option<(Arc<Entry>, Items)> {
    let state = table.get_mut(lane)?;
    match state.entry.clone() {
        Some(entry) if !state.queue.is_empty() && state.refused == 0 => {
            // If the handler has a rate, each call is granted by itself.
            let run_length = if entry.rate.is_some() { 1 } else { RUN_LENGTH };
            let single = || run_length.min(longest_run(&entry).max(1));
            let size = entry.form.batch().map_or_else(single, |(size, _)| size);
            Some((entry, state.take(size)))
        }
        _ => {
            state.ready = false;
            table.remove_if_idle(lane);
            None
        }
    }
}
