//! Intake: from a look at the database to records in their lanes.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    attempt::failed,
    fetcher::{Look, Seen, look},
    lane::Item,
    pipeline::{Pipeline, Task},
    room::Room,
};
use crate::{
    handler::Entry,
    partition::{Partition, PartitionSet},
    record::{Change, Lane, OnFailure, Record, Stop, StopReason},
    rules::frontier::Frontier,
    store::Suspicion,
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
        let unread = stops.iter().filter(|partition| self.is_unread(partition)).collect();
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
        let wanted = Look {
            epoch,
            turn,
            stops,
            unread,
            generations,
            due,
            asked,
            version,
            skip,
            limit,
            part,
            frontier,
        };
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
        let Seen { look, stops, suspicions, records, new, more, more_due, error, cluster_changes } = seen;
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
        let turn: PartitionSet = look.turn.iter().copied().collect();
        if !look.part {
            self.frontier = look.frontier;
        }
        self.take_stops(&stops, look.epoch, look.stops);
        self.take_suspicions(&suspicions, look.unread);
        if look.part && !more {
            self.crowded_no_more(turn);
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
        if look.part && !more {
            self.releases.see(turn);
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

    /// Takes over the stops of these partitions, read in this epoch.
    fn take_stops(&mut self, stops: &[Stop], epoch: u64, of: PartitionSet) {
        let released = self.lanes.reconcile(stops, epoch, |lane| of.contains(lane.partition));
        let lanes = &self.lanes;
        let released =
            released.union(self.releases.take_list(stops, of, |lane| lanes.stop_of(lane).is_some()));
        // The pending records of a lane that goes on in steps are far below all others.
        let new = self.releases.partitions().without(self.crowded);
        self.crowded = self.crowded.union(new);
        self.released = self.released.union(released).union(new);
        if !released.union(new).is_empty() {
            self.want();
        }
    }

    fn take_suspicions(&mut self, suspicions: &[Suspicion], of: PartitionSet) {
        if of.is_empty() {
            return;
        }
        let partitions = self.suspects.take_list(of, suspicions);
        if !partitions.is_empty() {
            self.observers.emit(Signal::CrashesSuspected { partitions });
        }
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
        let release = self.releases.of(&lane);
        if self.lanes.is_tainted(&lane) || standing.would_overtake && release.is_none() {
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
            let change = Change::Fail { error, lane: OnFailure::Continue };
            return self.write(id, failures, change, lane, Some(permit));
        }
        let stop = standing.stop;
        let stops_lane = stop.is_some_and(|stop| stop.record == id);
        let behind = match release.filter(|release| !release.is_before(id)) {
            Some(release) if release.may_have_moved() => return self.lanes.leave_behind(),
            Some(release) => Some(release.record),
            None => stop.filter(|_| !stops_lane).map(|stop| stop.record),
        };
        if let Some(behind) = behind {
            self.lanes.note(&record);
            return self.write(id, failures, Change::Hold { behind }, lane, Some(permit));
        }
        match self.registry.entry(&record.delivery.handler, &record.delivery.record_type).cloned() {
            Some(entry) => {
                let care = self.suspects.care(partition, Some(id));
                let item = Item { record: Arc::new(record), permit, stops_lane, care };
                match self.suspects.spent(id) {
                    Some(crashes) => self.give_up(item, crashes, &entry, lane),
                    None => self.lanes.push(lane, &entry, item),
                }
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

    /// A record whose calls have ended so many processes has failed: nobody calls its fallback, either.
    fn give_up(&mut self, item: Item, crashes: u32, entry: &Entry, lane: Lane) {
        self.lanes.note(&item.record);
        let lane_rules = entry.lane_rules;
        let error = format!("crashed: the process ended {crashes} times while this record was handled");
        let attempts = item.record.failures() + 1;
        self.observers.emit(failed(&item.record, attempts, &error, lane_rules));
        self.write_outcome(item, Change::Fail { error, lane: lane_rules.on_failure }, &lane);
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
            unread: PartitionSet::EMPTY,
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
            suspicions: Vec::new(),
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

    /// A step that is written, but not known to be, may have returned it; the next look would bring what
    /// follows it while it is on its way to be held.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_held_behind_a_release_that_may_have_moved() {
        let mut pipeline = fixtures::pipeline();
        let (reason, record_exists) = (StopReason::Releasing, false);
        let stop = Stop { lane: lane(), reason, record: 1, record_exists, released_to: 10 };
        pipeline.take_stops(&[stop], 1, PartitionSet::ALL);
        pipeline.sort_in(fixtures::record(20, "a"));
        assert!(pipeline.lanes.knows(20), "it is on its way to be held");
        let held = std::mem::take(&mut pipeline.outcomes);
        pipeline.settled(held, Settled { held: 1, ..Settled::default() });
        pipeline.releases.see(PartitionSet::ALL);
        pipeline.start_settle();
        pipeline.sort_in(fixtures::record(11, "a"));
        assert!(!pipeline.lanes.knows(11), "the step may have returned it");
        pipeline.sort_in(fixtures::record(5, "a"));
        assert!(pipeline.lanes.knows(5), "that was returned before");
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
