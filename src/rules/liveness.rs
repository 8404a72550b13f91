//! Which instances have gone silent, and which do not release partitions that others wait for.
//!
//! An observer watches beat *counters* with its own monotonic clock. Timestamps of other hosts are not used.
//! If the observer itself was interrupted (the database was unreachable, or the process was paused), its
//! windows start again: otherwise the first observer after an outage would evict all others.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    instance::{InstanceId, Member},
    partition::PartitionSet,
};

/// The observations that are kept between views.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    observed_at: Option<Duration>,
    beats: BTreeMap<InstanceId, (i64, Duration)>,
    awaited: BTreeMap<InstanceId, Duration>,
}

/// An instance that should be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The id of the instance.
    pub id: InstanceId,
    /// The last beat seen. An eviction succeeds only if the beat has not moved since.
    pub beat: i64,
    /// The time for which the observer has seen the beat unchanged.
    pub silent_for: Duration,
}

impl Observations {
    /// Observes a view of the live members at `now`. Returns the members that have been silent for
    /// `stale_timeout`.
    ///
    /// If more than `gap_limit` has passed since the last view, every window starts at `now`, and the second
    /// value is true.
    pub fn observe(
        &mut self,
        members: &[Member],
        now: Duration,
        stale_timeout: Duration,
        gap_limit: Duration,
    ) -> (Vec<Suspect>, bool) {
        let interrupted = self.observed_at.is_some_and(|last| now.saturating_sub(last) > gap_limit);
        if interrupted {
            self.beats.clear();
            self.awaited.clear();
        }
        self.observed_at = Some(now);
        let live = members.iter().filter(|member| member.state.is_live());
        self.beats = live
            .map(|member| match self.beats.get(&member.id) {
                Some((beat, since)) if *beat == member.beat => (member.id, (*beat, *since)),
                _ => (member.id, (member.beat, now)),
            })
            .collect();
        let silent = self.beats.iter().map(|(id, (beat, since))| Suspect {
            id: *id,
            beat: *beat,
            silent_for: now.saturating_sub(*since),
        });
        (silent.filter(|suspect| suspect.silent_for >= stale_timeout).collect(), interrupted)
    }

    /// Observes which live instances hold partitions that others wait for. Returns those that have held such
    /// partitions for `limit`: they beat, but do not release, so the whole instance is evicted.
    pub fn overdue(
        &mut self,
        holders: &BTreeMap<InstanceId, PartitionSet>,
        now: Duration,
        limit: Duration,
    ) -> Vec<InstanceId> {
        self.awaited.retain(|id, _| holders.contains_key(id));
        for id in holders.keys() {
            self.awaited.entry(*id).or_insert(now);
        }
        let overdue = self.awaited.iter().filter(|(_, since)| now.saturating_sub(**since) >= limit);
        overdue.map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::instance::InstanceState;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn member(number: u128, beat: i64) -> Member {
        Member { id: InstanceId::from(Uuid::from_u128(number)), state: InstanceState::Active, beat }
    }

    fn suspects(seen: &mut Observations, members: &[Member], now: u64) -> Vec<u128> {
        let (suspects, _) = seen.observe(members, s(now), s(30), s(20));
        suspects.iter().map(|suspect| suspect.id.as_uuid().as_u128()).collect()
    }

    #[test]
    fn a_counter_that_stands_still_is_suspect_and_one_that_moves_is_not() {
        let mut seen = Observations::default();
        for tick in 0..3 {
            assert!(suspects(&mut seen, &[member(1, 7), member(2, tick)], tick as u64 * 10).is_empty());
        }
        assert_eq!(suspects(&mut seen, &[member(1, 7), member(2, 3)], 30), [1]);
    }

    #[test]
    fn an_observer_that_was_interrupted_suspects_nobody() {
        let mut seen = Observations::default();
        assert!(suspects(&mut seen, &[member(1, 7)], 0).is_empty());
        assert!(suspects(&mut seen, &[member(1, 7)], 600).is_empty(), "an outage evicts nobody");
        assert!(suspects(&mut seen, &[member(1, 7)], 615).is_empty());
        assert_eq!(suspects(&mut seen, &[member(1, 7)], 630), [1]);
    }

    #[test]
    fn a_view_that_comes_just_in_time_is_no_interruption() {
        let mut seen = Observations::default();
        let mut interrupted = |now| seen.observe(&[], s(now), s(30), s(20)).1;
        assert_eq!([0, 20, 40, 61, 81].map(&mut interrupted), [false, false, false, true, false]);
    }

    #[test]
    fn one_that_does_not_let_go_is_overdue() {
        let mut seen = Observations::default();
        let holder = member(1, 0).id;
        let holders = BTreeMap::from([(holder, PartitionSet::ALL)]);
        assert!(seen.overdue(&holders, s(0), s(60)).is_empty());
        assert_eq!(seen.overdue(&holders, s(60), s(60)), [holder]);
        assert!(seen.overdue(&BTreeMap::new(), s(61), s(60)).is_empty());
        assert!(seen.overdue(&holders, s(62), s(60)).is_empty(), "letting go once starts it afresh");
    }
}
