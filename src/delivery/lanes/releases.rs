//! Lanes that go on in steps. So much is held behind such a lane that its row stays, with the reason
//! `releasing` and the id up to which its records are pending again: those are delivered, later ones are
//! held like the rest. When most of a step has been taken, the next one is asked for. No async, no IO.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::{
    partition::PartitionSet,
    record::{Lane, RecordId, Stop, StopReason},
    store::RETURNED_BY_A_STEP,
};

/// Steps that one settle takes at most, so that it does not take long.
const STEPS_A_SETTLE: usize = 16;

/// How far one lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// The record whose id names the row of the lane.
    pub(super) record: RecordId,
    /// Up to which id its held records have returned. Never changes: a list makes a new release.
    released_to: RecordId,
    /// All that the last step has returned was seen by a fetch.
    seen: bool,
    /// The next step is on its way.
    asked: bool,
    /// A step is durable, and no list has said since how far it went.
    moved: bool,
}

impl Release {
    /// Whether a pending record is to be delivered: it was returned, or is the one that had stopped the lane.
    pub(super) fn is_before(&self, id: RecordId) -> bool {
        id <= self.released_to || id == self.record
    }

    /// Whether a step may have returned more than is known. What comes then may be of it: on its way to be
    /// held, it would be overtaken by what the next fetch brings.
    pub(super) fn may_have_moved(&self) -> bool {
        self.asked || self.moved
    }
}

/// All lanes of this instance that go on in steps.
#[derive(Default)]
pub(super) struct Releases {
    /// From the lists of stops, until a list has the lane no more.
    lanes: BTreeMap<Lane, Release>,
    /// When steps were asked for last. Written by `due`.
    last_step: Option<Instant>,
    /// The last pause, and until when it is kept: between two fetches others seem to be idle. Written by `due`.
    paced: Option<(Duration, Instant)>,
    /// When a step that is due may be asked for. Written by `due`, while the pace holds one back.
    next_step: Option<Instant>,
}

impl Releases {
    /// Whether there are none, which is usually so.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(super) fn of(&self, lane: &Lane) -> Option<Release> {
        self.lanes.get(lane).copied()
    }

    /// Where there are such lanes.
    pub(super) fn partitions(&self) -> PartitionSet {
        self.lanes.keys().map(|lane| lane.partition).collect()
    }

    /// Takes over a list of stops of these partitions. `stopped` lanes are stopped by something later than
    /// the list. Returns where the last held records of a lane have returned.
    pub(super) fn take_list(
        &mut self,
        stops: &[Stop],
        of: PartitionSet,
        stopped: impl Fn(&Lane) -> bool,
    ) -> PartitionSet {
        let before = std::mem::take(&mut self.lanes);
        let (listed, others): (BTreeMap<_, _>, _) =
            before.into_iter().partition(|(lane, _)| of.contains(lane.partition));
        self.lanes = others;
        let releasing = stops.iter().filter(|stop| stop.reason == StopReason::Releasing);
        for Stop { lane, record, released_to, .. } in releasing.filter(|stop| !stopped(&stop.lane)) {
            let (record, released_to) = (*record, *released_to);
            let new = Release { record, released_to, seen: false, asked: false, moved: false };
            let known = listed.get(lane).filter(|known| known.released_to == released_to && !known.moved);
            self.lanes.insert(lane.clone(), known.copied().unwrap_or(new));
        }
        listed.keys().filter(|lane| !self.lanes.contains_key(lane)).map(|lane| lane.partition).collect()
    }

    /// A fetch has brought all that was pending in these partitions.
    pub(super) fn see(&mut self, partitions: PartitionSet) {
        let seen = self.lanes.iter_mut().filter(|(lane, _)| partitions.contains(lane.partition));
        seen.for_each(|(_, release)| release.seen = true);
    }

    /// The lanes whose next step is due, with the records that name their rows; none within `pause` of the last time.
    /// `few_left`: whether a lane with no more records in memory than this can take more.
    pub(super) fn due(
        &mut self,
        pause: Duration,
        now: Instant,
        few_left: impl Fn(&Lane, usize) -> bool,
    ) -> Vec<(Lane, RecordId)> {
        let is_due = |lane: &Lane, release: &Release| {
            release.seen && !release.asked && few_left(lane, RETURNED_BY_A_STEP / 2)
        };
        let mut due = self.lanes.iter_mut().filter(|(lane, release)| is_due(lane, release)).peekable();
        if !pause.is_zero() {
            self.paced = Some((pause, now + pause));
        }
        let pause = self.paced.filter(|(_, until)| now < *until).map_or(pause, |(pause, _)| pause);
        let paced = self.last_step.map(|last| last + pause).filter(|next| *next > now);
        self.next_step = paced.filter(|_| due.peek().is_some());
        if paced.is_some() || due.peek().is_none() {
            return Vec::new();
        }
        self.last_step = Some(now);
        let due = due.take(STEPS_A_SETTLE).map(|(lane, release)| {
            release.asked = true;
            (lane.clone(), release.record)
        });
        due.collect()
    }

    /// When a step that is due may be asked for, if the pace holds one back.
    pub(super) fn next_step(&self) -> Option<Instant> {
        self.next_step
    }

    /// A step of the lane is durable; how far it went, the next list of stops says.
    pub(super) fn step_ends(&mut self, lane: &Lane) {
        if let Some(release) = self.lanes.get_mut(lane) {
            (release.seen, release.asked, release.moved) = (false, false, true);
        }
    }

    /// The lane stands still again, or its partition is given up.
    pub(super) fn end(&mut self, lane: &Lane) -> Option<Release> {
        self.lanes.remove(lane)
    }

    pub(super) fn end_where(&mut self, closed: impl Fn(&Lane) -> bool) {
        self.lanes.retain(|lane, _| !closed(lane));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::Partition;

    fn lane() -> Lane {
        Lane { partition: Partition::of("a"), key: "a".into(), handler: "h".into() }
    }

    fn listed(released_to: RecordId) -> [Stop; 1] {
        let (reason, record) = (StopReason::Releasing, 7);
        [Stop { lane: lane(), reason, record, record_exists: false, released_to }]
    }

    fn due(releases: &mut Releases, few_left: impl Fn(&Lane, usize) -> bool) -> Vec<(Lane, RecordId)> {
        releases.due(Duration::ZERO, Instant::now(), few_left)
    }

    #[tokio::test(start_paused = true)]
    async fn steps_keep_their_pace() {
        let (mut releases, now, pause) = (Releases::default(), Instant::now(), Duration::from_millis(100));
        releases.take_list(&listed(20), PartitionSet::ALL, |_| false);
        releases.see(PartitionSet::ALL);
        assert_eq!(releases.due(pause, now, |_, _| true).len(), 1, "the first is at once");
        releases.step_ends(&lane());
        releases.take_list(&listed(40), PartitionSet::ALL, |_| false);
        releases.see(PartitionSet::ALL);
        assert!(releases.due(pause, now, |_, _| true).is_empty());
        assert_eq!(releases.next_step(), Some(now + pause), "somebody is to ask again then");
        assert!(releases.due(Duration::ZERO, now, |_, _| true).is_empty(), "others are idle for a moment");
        assert_eq!(releases.due(pause, now + pause, |_, _| true).len(), 1);
        assert_eq!(releases.next_step(), None);
    }

    #[test]
    fn a_step_is_asked_for_once_what_the_last_one_returned_was_seen() {
        let mut releases = Releases::default();
        releases.take_list(&listed(0), PartitionSet::ALL, |_| false);
        assert!(due(&mut releases, |_, _| true).is_empty(), "there may be more that is pending");
        releases.see(releases.partitions());
        assert!(due(&mut releases, |_, _| false).is_empty(), "too many are in memory");
        assert!(!releases.of(&lane()).unwrap().may_have_moved());
        assert_eq!(due(&mut releases, |_, _| true), [(lane(), 7)]);
        releases.take_list(&listed(0), PartitionSet::ALL, |_| false);
        assert!(releases.of(&lane()).unwrap().may_have_moved(), "the list may be from before the step");
        assert!(due(&mut releases, |_, _| true).is_empty(), "it is on its way");
        releases.step_ends(&lane());
        assert!(releases.of(&lane()).unwrap().may_have_moved(), "nobody has said how far");
        releases.take_list(&listed(500), PartitionSet::ALL, |_| false);
        assert!(due(&mut releases, |_, _| true).is_empty(), "a fetch has to bring what it returned");
        releases.see(releases.partitions());
        assert_eq!(due(&mut releases, |_, _| true).len(), 1);
    }

    #[test]
    fn what_a_step_has_returned_goes_on_and_the_rest_waits() {
        let mut releases = Releases::default();
        releases.take_list(&listed(20), PartitionSet::ALL, |_| false);
        let release = releases.of(&lane()).unwrap();
        assert!(release.is_before(7) && release.is_before(20) && !release.is_before(21));
    }

    #[test]
    fn a_lane_that_the_list_lacks_has_gone_on() {
        let mut releases = Releases::default();
        releases.take_list(&listed(20), PartitionSet::ALL, |_| false);
        let elsewhere = PartitionSet::ALL.without(releases.partitions());
        assert!(releases.take_list(&[], elsewhere, |_| false).is_empty());
        assert_eq!(
            releases.take_list(&[], PartitionSet::ALL, |_| false),
            [lane().partition].into_iter().collect()
        );
        assert_eq!(releases.of(&lane()), None);
    }

    #[test]
    fn a_later_stop_is_not_undone_by_an_older_list() {
        let mut releases = Releases::default();
        releases.take_list(&listed(20), PartitionSet::ALL, |_| true);
        assert_eq!(releases.of(&lane()), None);
    }
}
