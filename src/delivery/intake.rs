//! Intake: from a look at the database to records in their lanes.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    fetcher::{Look, Seen, look},
    lane::Item,
    pipeline::{Pipeline, Task},
    room::Room,
};
use crate::{
    partition::{Partition, PartitionSet},
    record::{AfterFailure, Change, Record, Stop, StopReason},
    rules::frontier::Frontier,
    telemetry::Signal,
};

/// The pause after a look that failed.
pub(super) const ERROR_PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

impl Pipeline {
    /// There may be something that the last look has not seen.
    pub(super) fn want(&mut self) {
        (self.wanted, self.news) = (true, true);
        self.listening.ask();
        self.barren = PartitionSet::EMPTY;
    }

    pub(super) fn start_look(&mut self) -> Option<Task<Seen>> {
        if Instant::now() < self.not_before {
            return None;
        }
        let Room { partitions: owned, limit, part } = self.room()?;
        let stops = self.stops_to_read(owned);
        self.refresh = self.refresh.without(stops);
        self.released = self.released.without(owned);
        let generations = stops.iter().filter_map(|p| Some((p, self.ownership.generation(p)?))).collect();
        let (epoch, skip) = self.lanes.begin_fetch();
        let turn = owned.iter().filter(|partition| partition.number() >= self.turn);
        let turn = turn.chain(owned.iter().filter(|partition| partition.number() < self.turn)).collect();
        if let Some((last_id, (number, server))) = self.wrote.take() {
            self.frontier.wrote(last_id, number, server);
        }
        if self.lanes.take_given_back() || self.any_unread(owned) {
            self.frontier.reset();
            self.listening.version = None;
        }
        // What is looked at by itself is not seen by the looks at all.
        let due = self.due_wanted || part;
        let frontier = self.frontier;
        self.news = false;
        // After a look at a part, the look at all is still to come.
        let mut asked = true;
        if !part {
            (self.wanted, self.due_wanted) = (false, false);
            asked = self.listening.begin();
        }
        let version = self.listening.version;
        let wanted =
            Look { epoch, turn, stops, generations, due, asked, version, skip, limit, part, frontier };
        Some(Task::start(look(Arc::clone(&self.store), wanted)))
    }

    /// The stops of what is looked at are read once, and then again when somebody may have released one;
    /// those of crowded partitions too, which no look at all of them covers.
    fn stops_to_read(&self, owned: PartitionSet) -> PartitionSet {
        let unread: PartitionSet = owned.iter().filter(|partition| self.is_unread(partition)).collect();
        let read = self.refresh.iter().filter(|partition| {
            self.ownership.is_open(*partition) && (owned.contains(*partition) || !self.is_unread(partition))
        });
        unread.union(read.collect())
    }

    fn any_unread(&self, owned: PartitionSet) -> bool {
        owned.iter().any(|partition| self.is_unread(&partition))
    }

    /// Whether the stops of a partition are not known yet.
    fn is_unread(&self, partition: &Partition) -> bool {
        self.ownership.generation(*partition) != Some(self.loaded[partition.index()])
    }

    pub(super) fn take_in(&mut self, seen: Seen) {
        let Seen { look, stops, records, new, more, more_due, error, cluster_changes } = seen;
        if let Some(changes) = cluster_changes {
            self.ownership.note_changes(changes);
        }
        if let Some(error) = error {
            self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
            self.want();
            self.due_wanted |= look.due;
            self.refresh = self.refresh.union(look.stops);
            self.released = self.released.union(look.turn.iter().copied().collect());
            // What was known of the database may be of another one.
            (self.frontier, self.wrote, self.settle_began_at) = (Frontier::default(), None, 0);
            self.listening.version = None;
            self.not_before = Instant::now() + ERROR_PAUSE;
            self.lanes.end_fetch();
            return;
        }
        match look.part {
            true if !more => self.crowded_no_more(look.turn.iter().copied().collect()),
            true => {}
            false => self.frontier = look.frontier,
        }
        let released = self.lanes.reconcile(&stops, look.epoch, |lane| look.stops.contains(lane.partition));
        if !released.is_empty() {
            self.released = self.released.union(released);
            self.want();
        }
        for (partition, generation) in look.generations {
            self.loaded[partition.index()] = generation;
        }
        self.resume_what_nothing_stops(&stops);
        if let Some(last) = records.last() {
            self.turn = last.delivery.partition.number().wrapping_add(1);
            let bytes: usize = records.iter().map(|record| record.payload.len()).sum();
            self.mean_bytes = (self.mean_bytes + bytes / records.len()) / 2 + 1;
            self.observers.emit(Signal::Fetched { records: records.len() });
        }
        let (brought, before) = (records.len(), self.lanes.in_flight());
        match self.ownership.lease_holds() {
            true => records.into_iter().for_each(|record| self.sort_in(record)),
            false => self.lanes.leave_behind(),
        }
        // What could not be taken waits for a write that is under way or for another change, of which the
        // pipeline is told: to look for it at once would go round in a circle.
        let barren = brought > 0 && self.lanes.in_flight() == before;
        if barren && look.part {
            look.turn.iter().for_each(|partition| self.barren.insert(*partition));
        }
        let more = more && !barren;
        self.wanted |= more;
        self.due_wanted |= more_due && !barren;
        self.news |= more && look.part;
        if !look.part {
            let found = new && self.lanes.in_flight() > before;
            self.listening.end((look.asked, found), look.version, self.config.poll_interval);
        }
        if more {
            // What is left is there already, though nobody commits anything.
            self.listening.version = None;
        }
        self.lanes.end_fetch();
    }

    /// Stops whose record is gone, or whose handler this build has, hold nothing back any more.
    pub(super) fn resume_what_nothing_stops(&mut self, stops: &[Stop]) {
        for stop in stops {
            let state = self.lanes.stop_of(&stop.lane).filter(|state| state.record == stop.record);
            let Some(state) = state else { continue };
            let adopted = state.may_be_adopted() && self.registry.knows(&stop.lane.handler);
            if adopted || !stop.record_exists {
                let permit = self.ownership.permit(stop.lane.partition);
                self.write(stop.record, 0, Change::Resume, stop.lane.clone(), permit);
            }
        }
    }

    pub(super) fn sort_in(&mut self, mut record: Record) {
        let id = record.delivery.id;
        let partition = record.delivery.partition;
        let lane = record.lane();
        if self.lanes.knows(id) {
            return;
        }
        let standing = self.lanes.standing(&lane);
        if self.lanes.is_tainted(&lane) || standing.would_overtake {
            return self.lanes.leave_behind();
        }
        // Without a permit the record is left where it is; so is all that follows in its partition.
        let Some(permit) = self.ownership.permit(partition) else { return self.lanes.leave_behind() };
        record.delivery.generation = permit.generation();
        if permit.generation() != self.loaded[partition.index()] {
            return self.lanes.leave_behind();
        }
        let failures = record.failures();
        let belongs = Partition::of(&record.delivery.key);
        if belongs != partition {
            self.lanes.note(&record);
            self.observers.emit(Signal::Quarantined { record: id, partition, belongs });
            let error = format!("stood in partition {partition}, but its key belongs to {belongs}");
            let change = Change::Fail { error, lane: AfterFailure::Continue };
            return self.write(id, failures, change, lane, Some(permit));
        }
        let stop = standing.stop;
        let stops_lane = stop.is_some_and(|stop| stop.record == id);
        if let Some(stop) = stop.filter(|_| !stops_lane) {
            self.lanes.note(&record);
            return self.write(id, failures, Change::Hold { behind: stop.record }, lane, Some(permit));
        }
        match self.registry.entry(&record.delivery.handler, &record.delivery.record_type).cloned() {
            Some(entry) => {
                let record = Arc::new(record);
                self.lanes.push(lane, &entry, Item { record, permit, stops_lane });
            }
            None => {
                self.lanes.note(&record);
                let record_type = record.delivery.record_type.to_string();
                self.observers.emit(Signal::Unroutable { record: id, lane: lane.clone(), record_type });
                self.stop(&lane, id, StopReason::Unroutable);
                self.write(id, failures, Change::Unroutable, lane, Some(permit));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{fixtures, outcomes::Pending},
        *,
    };
    use crate::{
        instance::Generation,
        record::{Lane, Settlement},
        rules::frontier::{Horizon, Plan, Probe},
        store::{ErrorClass, Settled, StoreError},
    };

    fn lane() -> Lane {
        fixtures::record(1, "a").lane()
    }

    /// A look at everything that has brought nothing.
    fn seen(pipeline: &mut Pipeline) -> Seen {
        let (epoch, skip) = pipeline.lanes.begin_fetch();
        let look = Look {
            epoch,
            turn: Partition::all().collect(),
            stops: PartitionSet::EMPTY,
            generations: Vec::new(),
            due: false,
            asked: true,
            version: None,
            skip,
            limit: 100,
            part: false,
            frontier: pipeline.frontier,
        };
        Seen {
            look,
            stops: Vec::new(),
            records: Vec::new(),
            new: false,
            more: false,
            more_due: false,
            error: None,
            cluster_changes: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_would_overtake_a_hold_is_left_behind() {
        let mut pipeline = fixtures::pipeline();
        pipeline.stop(&lane(), 1, StopReason::Retrying);
        pipeline.sort_in(fixtures::record(2, "a"));
        assert!(pipeline.lanes.knows(2), "it is on its way to be held");
        pipeline.resume(&lane(), 1);
        pipeline.sort_in(fixtures::record(3, "a"));
        assert!(!pipeline.lanes.knows(3), "it would be delivered before the second");
        assert!(pipeline.lanes.take_given_back(), "it is to be looked for again");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_taken_before_the_stops_of_its_generation_are_known() {
        let mut pipeline = fixtures::pipeline();
        pipeline.loaded.fill(Generation(0));
        pipeline.sort_in(fixtures::record(1, "a"));
        assert!(!pipeline.lanes.knows(1));
        pipeline.loaded.fill(fixtures::GENERATION);
        pipeline.sort_in(fixtures::record(1, "a"));
        assert!(pipeline.lanes.knows(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_failed_leaves_nothing_known_of_the_ids() {
        let mut pipeline = fixtures::pipeline();
        let horizon = Horizon { last_id: 10, ..Horizon::default() };
        pipeline.frontier.plan(PartitionSet::ALL);
        pipeline.frontier.probed(Probe { first: Some(4), horizon, number: None });
        assert_ne!(pipeline.frontier.plan(PartitionSet::ALL), Plan::Probe);
        let error = StoreError::new("sweep", ErrorClass::Reconnect, "gone");
        let failed = Seen { error: Some(error), ..seen(&mut pipeline) };
        pipeline.take_in(failed);
        assert_eq!(pipeline.frontier.plan(PartitionSet::ALL), Plan::Probe);
        assert_eq!(pipeline.wrote, None);
    }

    /// A look that nobody asks for is not taken while the version of the database stays the same.
    #[tokio::test(start_paused = true)]
    async fn what_is_left_or_given_back_is_looked_for_though_nobody_commits() {
        let mut pipeline = fixtures::pipeline();
        let known = |pipeline: &mut Pipeline, more| {
            let mut seen = Seen { more, ..seen(pipeline) };
            (seen.look.asked, seen.look.version) = (false, Some(7));
            pipeline.take_in(seen);
            pipeline.listening.version
        };
        assert_eq!(known(&mut pipeline, true), None);
        assert_eq!(known(&mut pipeline, false), Some(7));
        pipeline.lanes.leave_behind();
        pipeline.want();
        drop(pipeline.start_look());
        assert_eq!(pipeline.listening.version, None);
    }

    /// The lane was released meanwhile, by somebody else: what was not held is pending.
    #[tokio::test(start_paused = true)]
    async fn a_refused_hold_is_looked_for_and_its_lane_read_again() {
        let mut pipeline = fixtures::pipeline();
        pipeline.stop(&lane(), 1, StopReason::Blocked);
        pipeline.sort_in(fixtures::record(2, "a"));
        let written: Vec<Pending> = std::mem::take(&mut pipeline.outcomes);
        let held =
            |pending: &Pending| matches!(pending.settlement, Settlement { change: Change::Hold { .. }, .. });
        assert_eq!(written.iter().filter(|pending| held(pending)).count(), 1);
        (pipeline.wanted, pipeline.news) = (false, false);
        pipeline.settled(written, Settled::default());
        assert!(pipeline.refresh.contains(lane().partition), "its stops are to be read");
        assert!(pipeline.wanted && pipeline.lanes.take_given_back(), "it is to be looked for");
    }
}
