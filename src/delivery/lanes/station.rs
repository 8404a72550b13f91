//! The station of the lanes: the records in memory, the order in which they run, and the stopped lanes.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    admission::{Admission, admission},
    book::Book,
    stop::StopState,
    table::Name,
    wishes::Wishes,
};
use crate::{
    delivery::{
        outcome::{LaneRun, Outcome, Run},
        shares::{Shares, Vacancy},
        signals::{crashed, failed},
        work::{Batch, Item, Items, LaneId, Origin, Write},
    },
    handler::Entry,
    ownership::Permit,
    partition::{Partition, PartitionSet},
    record::{Change, Lane, OnFailure, Record, RecordId, Settlement, Stop, StopReason},
    rules::lifecycle::lane_goes_on,
    store::{Settled, Suspicion},
    telemetry::Signal,
};

/// The front of the station. No async, no IO, no clock: what the lanes want of others becomes a wish.
pub(in crate::delivery) struct Lanes(Book);

impl Lanes {
    /// A station without lanes. A record that has met `max_crashes` crashes fails.
    pub(in crate::delivery) fn new(max_crashes: u32, shares: Shares) -> Self {
        Self(Book::new(max_crashes, shares))
    }

    /// The wishes since the last call.
    pub(in crate::delivery) fn take_wishes(&mut self) -> Wishes {
        // The next event is likely to bring about as many writes.
        let next = Wishes { writes: Vec::with_capacity(self.0.wishes.writes.len()), ..Wishes::default() };
        std::mem::replace(&mut self.0.wishes, next)
    }

    /// Records in memory, and the bytes of their payloads.
    pub(in crate::delivery) fn in_memory(&self) -> (usize, usize) {
        (self.0.memory.records(), self.0.memory.bytes())
    }

    pub(in crate::delivery) fn partition_of(&self, lane: LaneId) -> Option<Partition> {
        self.0.table.get(lane).map(|state| state.name.partition)
    }

    /// A fetch begins. Returns its number and the records in memory, which it leaves out.
    pub(in crate::delivery) fn begin_fetch(&mut self) -> (u64, Vec<RecordId>) {
        (self.0.fetches.begin(), self.0.memory.ids())
    }

    /// The records of the fetch were admitted, or the fetch has failed.
    pub(in crate::delivery) fn end_fetch(&mut self) {
        self.0.fetches.end();
    }

    /// A fetch has brought all that was pending in these partitions.
    pub(in crate::delivery) fn fetched_all_of(&mut self, partitions: PartitionSet) {
        self.0.releases.see(partitions);
    }

    /// Takes over the stops of these partitions, read by fetch `seq`.
    pub(in crate::delivery) fn take_stops(&mut self, stops: &[Stop], seq: u64, of: PartitionSet) {
        if of.is_empty() {
            return;
        }
        let listed = stops.iter().filter(|stop| stop.stands_still());
        let listed: HashSet<&Lane> = listed.map(|stop| &stop.lane).collect();
        let released = self.0.table.iter().filter(|(_, state)| {
            let refuted = state.stop.is_some_and(|stop| stop.is_refuted_by(seq));
            refuted && of.contains(state.name.partition) && !listed.contains(&state.name)
        });
        let released: Vec<(LaneId, Partition)> =
            released.map(|(lane, state)| (lane, state.name.partition)).collect();
        released.iter().for_each(|(lane, _)| self.0.end_stop(*lane));
        for Stop { lane, reason, record, .. } in stops.iter().filter(|stop| stop.stands_still()) {
            let lane = self.0.table.of_or_insert(lane);
            let (durable_since, own) = (Some(seq.saturating_sub(1)), false);
            let stop = StopState { record: *record, reason: *reason, durable_since, own };
            if let Some(state) = self.0.table.get_mut(lane) {
                state.stop.get_or_insert(stop);
            }
        }
        let table = &self.0.table;
        let is_stopped = |lane: &Lane| {
            table.of(lane).and_then(|lane| table.get(lane)).is_some_and(|state| state.stop.is_some())
        };
        let returned = self.0.releases.take_list(stops, of, is_stopped);
        let released: PartitionSet = released.into_iter().map(|(_, partition)| partition).collect();
        // A fetch may have left out records of these lanes that are pending again.
        self.0.wishes.released = self.0.wishes.released.union(released).union(returned);
        self.0.wishes.fetch |= !released.union(returned).is_empty();
    }

    /// The partitions with lanes that are released in steps.
    pub(in crate::delivery) fn releasing(&self) -> PartitionSet {
        self.0.releases.partitions()
    }

    /// Takes over the suspicions of these partitions: what may have crashed their earlier owners.
    pub(in crate::delivery) fn take_suspicions(
        &mut self,
        list: &[Suspicion],
        of: PartitionSet,
        now: Instant,
    ) {
        let partitions = self.0.suspects.take_list(of, list, now);
        if !partitions.is_empty() {
            self.0.wishes.signals.push(Signal::CrashesSuspected { partitions });
        }
    }

    /// Resumes each listed lane whose stopping record is gone, or whose handler this build has.
    pub(in crate::delivery) fn resume_unstopped(&mut self, stops: &[Stop], knows: impl Fn(&str) -> bool) {
        for Stop { lane: name, record, record_exists, .. } in stops {
            let Some(lane) = self.0.table.of(name) else { continue };
            let Some(stop) = self.0.stop_of(lane).filter(|stop| stop.record == *record) else { continue };
            if !record_exists || stop.may_be_adopted() && knows(&name.handler) {
                self.0.write(lane, (*record, 0), Change::Resume, None);
            }
        }
    }

    /// Some fetched records of these partitions were not admitted.
    pub(in crate::delivery) fn mark_missed(&mut self, partitions: PartitionSet) {
        self.0.wishes.missed = self.0.wishes.missed.union(partitions);
    }

    /// Admits a record to its lane: queues it, has it written as held or failed, or misses it. `began`: when
    /// its fetch began, on the clock. Without a permit, the record is missed.
    pub(in crate::delivery) fn admit(
        &mut self,
        mut record: Arc<Record>,
        began: Duration,
        permit: Option<Permit>,
        entry: Option<&Arc<Entry>>,
    ) {
        let delivery = &record.delivery;
        let (id, partition) = (delivery.id, delivery.partition);
        if self.0.memory.knows(id) {
            return;
        }
        let Some(permit) = permit else { return self.0.wishes.missed.insert(partition) };
        let name = Name { partition, key: &delivery.key, handler: &delivery.handler };
        let (hash, found) = self.0.table.find(name);
        let state = found.and_then(|lane| self.0.table.get(lane));
        let release = if self.0.releases.is_empty() { None } else { self.0.releases.of(&record.lane()) };
        let stale = !self.0.fetches.all_fresh() && self.0.fetches.is_stale(&record.lane());
        let admitted = admission((id, partition, Partition::of(&delivery.key)), state, release, stale);
        if admitted == Admission::Miss {
            return self.0.wishes.missed.insert(partition);
        }
        Arc::make_mut(&mut record).delivery.generation = permit.generation();
        self.0.memory.add(id, partition, record.payload.len(), entry.map(|entry| entry.number));
        let lane = found.unwrap_or_else(|| self.0.table.insert(hash, record.lane()));
        match (admitted, entry) {
            (Admission::Miss, _) => {}
            (Admission::Misplaced { belongs }, _) => {
                self.0.wishes.signals.push(Signal::Quarantined { record: id, partition, belongs });
                let error = format!("stood in partition {partition}, but its key belongs to {belongs}");
                let change = Change::Fail { error, lane: OnFailure::Continue, counted: true };
                self.0.write(lane, (id, record.failures()), change, Some(permit));
            }
            (Admission::Hold { behind }, _) => {
                self.0.write(lane, (id, record.failures()), Change::Hold { behind }, Some(permit));
            }
            (Admission::Queue { .. }, None) => self.0.stop_as_unroutable(lane, &record, permit),
            (Admission::Queue { stops_lane }, Some(entry)) => {
                let care = self.0.suspects.care(partition, Some(id));
                let expires = record.delivery.expires_in.map(|left| began.saturating_add(left));
                let item = Item { record, permit, stops_lane, care, expires };
                match self.0.suspects.spent(id) {
                    Some(crashes) => self.give_up(lane, item, crashes, entry),
                    None => self.0.ready.push(&mut self.0.table, lane, entry, item),
                }
            }
        }
    }

    /// A record that has met too many crashes has failed. Its fallback is not called either.
    fn give_up(&mut self, lane: LaneId, item: Item, crashes: u32, entry: &Entry) {
        let error = crashed(crashes);
        let attempts = item.record.failures() + 1;
        self.0.wishes.signals.push(failed(&item.record, attempts, &error, entry.lane_rules));
        let change = Change::Fail { error, lane: entry.lane_rules.on_failure, counted: true };
        self.write_outcome(lane, &item.record, item.permit, change);
    }

    /// The next run of a ready lane.
    pub(in crate::delivery) fn next_run(&mut self, vacancy: Vacancy, now: Instant) -> Option<Run> {
        self.0.ready.next_run(&mut self.0.table, vacancy, now)
    }

    /// When the next waiting lane may run, if only its rate delays it.
    pub(in crate::delivery) fn next_start(&self) -> Option<Instant> {
        self.0.ready.next_start()
    }

    /// Takes over the outcomes of a run.
    pub(in crate::delivery) fn land(&mut self, run: Run) {
        self.0.ready.land(&run);
        for LaneRun { lane, items, over, .. } in run.lanes {
            let mut untried = Items::new();
            let mut lost = false;
            for (item, outcome) in items {
                match outcome {
                    Outcome::Completed => {
                        self.write_outcome(lane, &item.record, item.permit, Change::Complete);
                    }
                    Outcome::Changed(change) => {
                        self.write_outcome(lane, &item.record, item.permit, *change);
                    }
                    Outcome::Written => self.0.written_by_its_handler(lane, &item),
                    Outcome::Untried => untried.push(item),
                    Outcome::Lost => {
                        self.0.requeue(item.id());
                        lost = true;
                    }
                    Outcome::Aborted(error) => {
                        let signal = Signal::StoreFailed { call: error.call, error: error.chain() };
                        self.0.wishes.signals.push(signal);
                        self.0.wishes.pause = true;
                        self.0.requeue(item.id());
                        lost = true;
                    }
                }
            }
            if over {
                self.take_back(lane, untried, lost);
                if let Some(state) = self.0.table.get_mut(lane) {
                    state.running = false;
                    self.0.ready.offer(state, lane);
                }
                self.0.table.remove_if_idle(lane);
            }
        }
    }

    fn write_outcome(&mut self, lane: LaneId, record: &Record, permit: Permit, change: Change) {
        let id = record.delivery.id;
        if !lane_goes_on(&change) {
            let reason = match change {
                Change::Retry { .. } => StopReason::Retrying,
                Change::Unroutable => StopReason::Unroutable,
                _ => StopReason::Blocked,
            };
            self.0.stop(lane, id, reason);
        }
        self.0.write(lane, (id, record.failures()), change, Some(permit));
    }

    /// Untried records return to the queue, unless their lane is stopped or abandoned.
    fn take_back(&mut self, lane: LaneId, untried: Items, lost: bool) {
        let Some(state) = self.0.table.get_mut(lane) else { return };
        match state.stop {
            Some(stop) => {
                for item in untried {
                    if item.id() == stop.record {
                        self.0.requeue(stop.record);
                        self.0.wishes.due = true;
                    } else {
                        self.0.hold(lane, item, stop.record);
                    }
                }
            }
            None if untried.is_empty() && !lost => {}
            None => {
                let given_up = lost || untried.iter().any(|item| !item.permit.is_current());
                state.queue.insert_many(0, untried);
                if given_up {
                    self.0.abandon(lane);
                    self.0.wishes.fetch = true;
                }
            }
        }
    }

    /// Asks for the next steps of releases, at least `pause` after the last steps. Returns whether a lane is
    /// released in steps.
    pub(in crate::delivery) fn ask_for_steps(&mut self, pause: Duration, now: Instant) -> bool {
        if self.0.releases.is_empty() {
            return false;
        }
        let table = &self.0.table;
        let has_few = |lane: &Lane, most| {
            let state = table.of(lane).and_then(|lane| table.get(lane));
            state.is_none_or(|state| state.queue.len() <= most && state.holds == 0)
        };
        for (lane, record) in self.0.releases.due(pause, now, has_few) {
            let lane = self.0.table.of_or_insert(&lane);
            self.0.write(lane, (record, 0), Change::Release, None);
        }
        true
    }

    /// When to ask for steps again, if the pause delays one.
    pub(in crate::delivery) fn next_step(&self) -> Option<Instant> {
        self.0.releases.next_step()
    }

    /// Takes over the result of a settle.
    pub(in crate::delivery) fn settled(&mut self, batch: &Batch, settled: &Settled) {
        let (mut holds, mut of_lanes) = (0, 0);
        for (Settlement { id, change, .. }, Origin { lane, pause, .. }) in
            batch.settlements.iter().zip(&batch.origins)
        {
            let (id, lane) = (*id, *lane);
            if change.is_of_lane() {
                of_lanes += 1;
            } else {
                self.0.end(id);
            }
            holds += usize::from(matches!(change, Change::Hold { .. }));
            self.0.write_ends(lane, change, !pause.is_zero());
            self.0.lane_settled(lane, id, change, settled.releasing > 0);
            self.0.table.remove_if_idle(lane);
        }
        // Some records were not in the expected state. They have left memory, so a fetch searches for them.
        if settled.applied + settled.held < batch.len() - of_lanes {
            self.0.wishes.missed = PartitionSet::ALL;
        }
        if settled.held < holds {
            // A lane was released meanwhile. Its records are pending and will be fetched.
            let pairs = batch.settlements.iter().zip(&batch.origins);
            let held = pairs.filter(|(settlement, _)| matches!(settlement.change, Change::Hold { .. }));
            let partitions = held.filter_map(|(_, origin)| Some(origin.permit.as_ref()?.partition()));
            self.0.wishes.stops = self.0.wishes.stops.union(partitions.collect());
            (self.0.wishes.missed, self.0.wishes.fetch) = (PartitionSet::ALL, true);
        }
    }

    /// The database refuses a write of this lane for the first time. Until the write is durable, no record of
    /// the lane runs, because a later record would be delivered before an earlier one is settled.
    pub(in crate::delivery) fn refused(&mut self, lane: LaneId) {
        if let Some(state) = self.0.table.get_mut(lane) {
            state.refused += 1;
        }
    }

    /// A refused write is given up, because another instance may own its partition.
    pub(in crate::delivery) fn write_given_up(&mut self, Write { settlement, origin }: Write) {
        self.0.write_ends(origin.lane, &settlement.change, !origin.pause.is_zero());
        self.0.requeue(settlement.id);
        self.0.table.remove_if_idle(origin.lane);
    }

    /// Cuts queues of at least `share` records to half of that. Returns their partitions.
    pub(in crate::delivery) fn cut_queues(&mut self, share: usize) -> PartitionSet {
        self.0.cut_queues(share)
    }

    /// Requeues queued records of the handler with this number until its records take at most `share` places in
    /// memory.
    pub(in crate::delivery) fn cut_handler(&mut self, number: usize, share: usize) {
        self.0.cut_handler(number, share);
    }

    /// The places in memory of the records of the handler with this number.
    pub(in crate::delivery) fn of_handler(&self, number: usize) -> usize {
        self.0.memory.of_handler(number)
    }

    /// Abandons the queues, stops and suspicions of partitions that are not open.
    pub(in crate::delivery) fn close(&mut self, is_open: impl Fn(Partition) -> bool) {
        self.0.suspects.end_where(|partition| !is_open(partition));
        self.0.releases.end_where(|lane| !is_open(lane.partition));
        let closed = self.0.table.iter().filter(|(_, state)| !is_open(state.name.partition));
        let closed: Vec<LaneId> = closed.map(|(lane, _)| lane).collect();
        for lane in closed {
            self.0.abandon(lane);
            self.0.end_stop(lane);
        }
    }

    /// Partitions that were owned for `after` without a crash. They are no longer suspected.
    pub(in crate::delivery) fn calm(&mut self, after: Duration, now: Instant) -> PartitionSet {
        self.0.suspects.calm(after, now)
    }

    /// The partitions with a lane that waits for a person or for another build.
    pub(in crate::delivery) fn waiting_for_others(&self) -> PartitionSet {
        let waiting =
            self.0.table.iter().filter(|(_, state)| state.stop.is_some_and(|stop| stop.waits_for_others()));
        waiting.map(|(_, state)| state.name.partition).collect()
    }
}

#[cfg(test)]
mod order;
#[cfg(test)]
mod tests;
