//! Lanes that go on in steps, because too many records are held behind them for one settle. The row of such a
//! lane stays, with the reason `releasing` and the id up to which its records are pending again. Those
//! records are delivered, later ones are held. Once most of a step is delivered, the next one is asked for.
//! No async, no IO.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::{
    partition::PartitionSet,
    record::{Lane, RecordId, Stop, StopReason},
    store::RETURNED_BY_A_STEP,
};

/// The most steps per settle, so that a settle stays short.
const STEPS_A_SETTLE: usize = 16;

/// How far the release of one lane has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// The record whose id names the row of the lane. Never changes.
    pub(super) record: RecordId,
    /// The id up to which held records have returned. Never changes: a new list makes a new release.
    released_to: RecordId,
    /// Whether a fetch has brought all that the last step returned. Set by `see`, cleared by `step_ends`.
    seen: bool,
    /// Whether the next step is under way. Set by `due`, cleared by `step_ends`.
    asked: bool,
    /// Whether a step is durable and no later list has shown how far it went. Set by `step_ends`.
    moved: bool,
}

impl Release {
    /// Whether a pending record is to be delivered: a step has returned it, or it had stopped the lane.
    pub(super) fn is_before(&self, id: RecordId) -> bool {
        id <= self.released_to || id == self.record
    }

    /// Whether a step may have returned more than the last list says. A record fetched now may be of that
    /// step: if it were held, later records could overtake it.
    pub(super) fn may_have_moved(&self) -> bool {
        self.asked || self.moved
    }
}

/// All lanes of this instance that are released in steps.
#[derive(Default)]
pub(super) struct Releases {
    /// Replaced by each list of stops, until a list lacks the lane.
    lanes: BTreeMap<Lane, Release>,
    /// When steps were last asked for. Written by `due`.
    last_step: Option<Instant>,
    /// The last pause, and until when it is kept, because others seem idle between two fetches. Written by
    /// `due`.
    paced: Option<(Duration, Instant)>,
    /// When a step that is due may be asked for, if the pause delays one. Written by `due`.
    next_step: Option<Instant>,
}

impl Releases {
    /// Whether no lane is released in steps, which is the usual case.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(super) fn of(&self, lane: &Lane) -> Option<Release> {
        self.lanes.get(lane).copied()
    }

    /// The partitions with such lanes.
    pub(super) fn partitions(&self) -> PartitionSet {
        self.lanes.keys().map(|lane| lane.partition).collect()
    }

    /// Takes over a list of stops of the partitions `of`. `stopped`: whether a lane has a stop that is newer
    /// than the list. Returns the partitions of lanes whose last held records have returned.
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

    /// The lanes whose next step is due, with the records that name their rows. Empty within `pause` of the
    /// last steps. `few_left`: whether a lane has at most this many records in memory and can take more.
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

    /// When a step that is due may be asked for, if the pause delays one.
    pub(super) fn next_step(&self) -> Option<Instant> {
        self.next_step
    }

    /// A step of the lane is durable. The next list of stops shows how far it went.
    pub(super) fn step_ends(&mut self, lane: &Lane) {
        if let Some(release) = self.lanes.get_mut(lane) {
            (release.seen, release.asked, release.moved) = (false, false, true);
        }
    }

    /// The lane is stopped again, or its partition is given up.
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

    /// Half of what a step returns: the next step is written while the rest of it runs.
    #[tokio::test(start_paused = true)]
    async fn the_next_step_is_due_when_half_of_the_last_one_is_left() {
        let mut releases = Releases::default();
        releases.take_list(&listed(10), PartitionSet::ALL, |_| false);
        releases.see(PartitionSet::ALL);
        let left = |records| move |_: &Lane, few: usize| records <= few;
        assert!(due(&mut releases, left(RETURNED_BY_A_STEP / 2 + 1)).is_empty());
        assert_eq!(due(&mut releases, left(RETURNED_BY_A_STEP / 2)), [(lane(), 7)]);
    }
}
