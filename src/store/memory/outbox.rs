//! The tables of one outbox, and the writes shared by several calls.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    journal::{Journal, Written},
    letters::DeadLetters,
    rows::{Row, Rows},
};
use crate::{
    handler::Route,
    instance::{Claim, InstanceId, InstanceState},
    partition::{PARTITION_COUNT, Partition},
    record::{Lane, RecordId, StopReason},
    rules::{
        horizon::{Bystanders, Horizon, Server},
        witnesses::{Snapshot, Witness},
    },
    store::{CLOSED, FenceRow, Mode, RETURNED_AT_ONCE, RETURNED_BY_A_STEP},
};

/// The tables of one outbox.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    /// The server that gave out the numbers and ids. Set by a failover.
    server: i64,
    /// Writes of claims and members that are not reported yet.
    journal: Journal,
    last_id: RecordId,
    /// The ids that are used up between two ids.
    between: RecordId,
    last_number: i64,
    /// The numbers of open transactions, and whether each has drawn ids.
    pub(super) open: BTreeMap<i64, bool>,
    pub(super) records: Rows,
    /// Records that open transactions are about to cancel.
    pub(super) cancelling: BTreeSet<RecordId>,
    /// Archived rows and the time of their completion.
    pub(super) archive: BTreeMap<RecordId, (Row, Instant)>,
    pub(super) dead_letters: DeadLetters,
    /// Stopped lanes by the record that stops them.
    pub(super) lanes: BTreeMap<RecordId, StoppedRow>,
    /// The record that has stopped each of those lanes. A lane has at most one stop.
    stopped_by: HashMap<Lane, RecordId>,
    pub(super) instances: BTreeMap<InstanceId, InstanceRow>,
    pub(super) fences: BTreeMap<(InstanceId, u32), i64>,
    pub(super) claims: [Claim; PARTITION_COUNT],
    /// The time of the last claim per partition.
    pub(super) claimed: [Option<Instant>; PARTITION_COUNT],
    /// Crashes of the owners per partition.
    pub(super) crashes: [u32; PARTITION_COUNT],
    /// Tracked calls by their records.
    pub(super) starts: BTreeMap<RecordId, StartRow>,
    pub(super) cluster_changes: i64,
    pub(super) routes: BTreeSet<Route>,
    /// The time at which each key was inserted.
    pub(super) dedup_keys: HashMap<String, Instant>,
    /// How the records are delivered. Set by a process that starts in claimed mode.
    pub(super) mode: Mode,
}

/// One row of `outbox_lane`.
#[derive(Clone, Debug)]
pub(super) struct StoppedRow {
    pub(super) lane: Lane,
    pub(super) reason: StopReason,
    pub(super) held: u64,
    pub(super) since: Instant,
    /// The id up to which the held records are pending again, while the reason is releasing.
    pub(super) released_to: RecordId,
}

/// One row of `outbox_start`.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartRow {
    pub(super) partition: Partition,
    pub(super) instance: Option<InstanceId>,
    pub(super) crashes: u32,
}

/// One row of `outbox_instance`.
#[derive(Clone, Debug)]
pub(super) struct InstanceRow {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) state: InstanceState,
    pub(super) beat: i64,
    pub(super) started: Instant,
    pub(super) last_beat: Instant,
}

impl Outbox {
    pub(super) fn new(server: i64, journaled: bool) -> Self {
        let mut new = Self {
            server,
            journal: Journal::default(),
            last_id: 0,
            between: 0,
            last_number: 0,
            open: BTreeMap::new(),
            records: Rows::default(),
            cancelling: BTreeSet::new(),
            archive: BTreeMap::new(),
            dead_letters: DeadLetters::new(),
            lanes: BTreeMap::new(),
            stopped_by: HashMap::new(),
            instances: BTreeMap::new(),
            fences: BTreeMap::new(),
            claims: [Claim::default(); PARTITION_COUNT],
            claimed: [None; PARTITION_COUNT],
            crashes: [0; PARTITION_COUNT],
            starts: BTreeMap::new(),
            cluster_changes: 0,
            routes: BTreeSet::new(),
            dedup_keys: HashMap::new(),
            mode: Mode::default(),
        };
        if journaled {
            new.open_journal();
        }
        new
    }

    /// Uses up so many ids between two ids from now on.
    pub(super) fn use_up_between(&mut self, ids: RecordId) {
        self.between = ids;
    }

    /// Begins to keep the writes.
    pub(super) fn open_journal(&mut self) {
        self.journal.open();
        self.records.open_journal();
    }

    /// The writes since the last call.
    pub(super) fn take_journal(&mut self) -> impl Iterator<Item = Written> + use<> {
        self.journal.take().into_iter().chain(self.records.take_journal())
    }

    /// Continues on another server, without the open transactions of the server before.
    pub(super) fn fail_over(&mut self, server: i64, before: Option<&Self>) {
        self.server = server;
        self.last_id = before.map_or(self.last_id, |before| before.last_id);
        self.open.clear();
        self.cancelling.clear();
        drop(self.take_journal());
    }

    /// Writes the claim of a partition.
    pub(super) fn write_claim(&mut self, partition: Partition, claim: Claim) {
        self.claims[partition.index()] = claim;
        let Claim { owner, generation } = claim;
        self.journal.push(|| Written::Claimed { partition, owner, generation });
    }

    /// Writes the state of a member.
    pub(super) fn write_state(&mut self, instance: InstanceId, state: InstanceState) {
        if let Some(row) = self.instances.get_mut(&instance) {
            row.state = state;
            self.journal.push(|| Written::Member { instance, state });
        }
    }

    /// Draws the number of a transaction.
    pub(super) fn draw_number(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }

    /// How far the ids are resolved.
    pub(super) fn horizon(&self) -> Horizon {
        let snapshot = Snapshot { end: self.last_number + 1, open: self.open.keys().copied().collect() };
        let (server, last_id) = (self.server(), self.last_id);
        Horizon { server, last_id, snapshot: Some(snapshot), ..Horizon::default() }
    }

    pub(super) fn server(&self) -> Server {
        Server(self.server)
    }

    /// Begins a transaction and returns its number.
    pub(super) fn begin(&mut self) -> i64 {
        let number = self.draw_number();
        self.open.insert(number, false);
        number
    }

    /// Those of the transactions that are open and have drawn no id.
    pub(super) fn bystanders(&self, numbers: &[i64]) -> Bystanders {
        let stands_by = |number: &i64| self.open.get(number) == Some(&false);
        let numbers = numbers.iter().copied().filter(stands_by).collect();
        Bystanders { server: self.server(), last_id: self.last_id, numbers }
    }

    /// The last id, and a number that no transaction has.
    pub(super) fn witness(&mut self) -> Witness {
        Witness { last_id: self.last_id, number: self.draw_number() }
    }

    /// Draws an id. The id is used up even if its transaction rolls back.
    pub(super) fn draw_id(&mut self) -> RecordId {
        self.last_id += 1 + self.between;
        self.last_id
    }

    /// The fence: moves the counter on. Returns false if the row does not have the expected counter.
    pub(super) fn move_fence(&mut self, fence: FenceRow) -> bool {
        let FenceRow { instance, slot, .. } = fence;
        if self.fences.get(&(instance, slot)) == Some(&CLOSED) {
            self.journal.push(|| Written::Refused { instance });
        }
        self.write_fence(fence, fence.moved())
    }

    /// Makes a settle with a lost reply ineffective, unless it was written.
    pub(super) fn invalidate_fence(&mut self, fence: FenceRow) {
        self.write_fence(fence, fence.invalidated());
    }

    fn write_fence(&mut self, fence: FenceRow, next: FenceRow) -> bool {
        let server = self.server();
        match self.fences.get_mut(&(fence.instance, fence.slot)) {
            Some(counter) if *counter == fence.counter && fence.server == server => {
                *counter = next.counter;
                true
            }
            _ => false,
        }
    }

    /// Closes the fence rows of an instance, so that a later write finds no counter.
    pub(super) fn close_fences(&mut self, instance: InstanceId) {
        let rows = self.fences.range_mut((instance, 0)..=(instance, u32::MAX));
        rows.for_each(|(_, counter)| *counter = CLOSED);
    }

    /// Counts the crash of an instance that was evicted because it was silent.
    pub(super) fn count_crash(&mut self, instance: InstanceId) {
        for (claim, crashes) in self.claims.iter().zip(&mut self.crashes) {
            *crashes += u32::from(claim.owner == Some(instance));
        }
        for start in self.starts.values_mut().filter(|start| start.instance == Some(instance)) {
            (start.instance, start.crashes) = (None, start.crashes + 1);
        }
    }

    /// Whether an instance may own partitions.
    pub(super) fn is_live(&self, instance: InstanceId) -> bool {
        self.instances.get(&instance).is_some_and(|row| row.state.is_live())
    }

    /// Stops the lane of this record, or changes the reason of the stop. If another record has stopped the
    /// lane, nothing changes.
    pub(super) fn stop_lane(&mut self, id: RecordId, reason: StopReason, now: Instant) {
        if let Some(stopped) = self.lanes.get_mut(&id) {
            stopped.reason = reason;
            return;
        }
        let Some(lane) = self.records.get(id).map(Row::lane) else { return };
        if !self.stopped_by.contains_key(&lane) {
            self.stopped_by.insert(lane.clone(), id);
            self.lanes.insert(id, StoppedRow { lane, reason, held: 0, since: now, released_to: 0 });
        }
    }

    /// Removes the stop of this record: the held records return, at once or, if they are many, in steps.
    /// Returns whether they return in steps.
    pub(super) fn resume_lane(&mut self, id: RecordId) -> bool {
        let Some(stopped) = self.lanes.get_mut(&id) else { return false };
        if stopped.reason == StopReason::Releasing {
            return true;
        }
        if stopped.held > RETURNED_AT_ONCE {
            (stopped.reason, stopped.released_to) = (StopReason::Releasing, 0);
            return true;
        }
        self.remove_stop(id, usize::MAX);
        false
    }

    /// Returns the next held records of a releasing lane. With the last of them the row of the lane is
    /// deleted.
    pub(super) fn release_step(&mut self, id: RecordId) {
        let releasing = |row: &&mut StoppedRow| row.reason == StopReason::Releasing;
        let Some(row) = self.lanes.get_mut(&id).filter(releasing) else { return };
        let held = self.records.held_after(&row.lane, row.released_to);
        if held.len() < RETURNED_BY_A_STEP {
            return self.remove_stop(id, held.len());
        }
        let (lane, last) = (row.lane.clone(), held[RETURNED_BY_A_STEP - 1]);
        (row.released_to, row.held) = (last, row.held.saturating_sub(RETURNED_BY_A_STEP as u64));
        self.records.return_held(&lane, RETURNED_BY_A_STEP);
    }

    fn remove_stop(&mut self, id: RecordId, held: usize) {
        if let Some(stopped) = self.lanes.remove(&id) {
            self.stopped_by.remove(&stopped.lane);
            self.records.return_held(&stopped.lane, held);
        }
    }

    /// Stops a releasing lane by another of its records.
    pub(super) fn stop_release(&mut self, id: RecordId, by: RecordId) {
        if self.lanes.get(&id).is_some_and(|row| row.reason == StopReason::Releasing)
            && let Some(row) = self.lanes.remove(&id)
        {
            self.stopped_by.insert(row.lane.clone(), by);
            self.lanes.insert(by, StoppedRow { reason: StopReason::Retrying, released_to: 0, ..row });
        }
    }

    /// Deletes archived rows and dedup keys of these ages. Returns their number.
    pub(super) fn purge_others(&mut self, older_than: Duration, dedup: Duration, now: Instant) -> u64 {
        let before = self.archive.len() + self.dedup_keys.len();
        self.archive.retain(|_, (_, at)| now.saturating_duration_since(*at) < older_than);
        self.dedup_keys.retain(|_, at| now.saturating_duration_since(*at) < dedup);
        (before - self.archive.len() - self.dedup_keys.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_counts_for_what_was_owned_and_for_the_calls_under_way() {
        let mut outbox = Outbox::new(1, false);
        let (dead, other) = (InstanceId::generate(), InstanceId::generate());
        let [one, two] = [Partition::of("a"), Partition::of("b")];
        for (partition, owner, record) in [(one, dead, 1), (two, other, 2)] {
            outbox.write_claim(partition, Claim { owner: Some(owner), ..Claim::default() });
            outbox.starts.insert(record, StartRow { partition, instance: Some(owner), crashes: 0 });
        }
        outbox.count_crash(dead);
        assert_eq!([one, two].map(|partition| outbox.crashes[partition.index()]), [1, 0]);
        let starts: Vec<_> = outbox.starts.values().map(|start| (start.instance, start.crashes)).collect();
        assert_eq!(starts, [(None, 1), (Some(other), 0)]);
    }
}
