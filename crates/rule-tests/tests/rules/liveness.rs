//! Which instances have gone silent, and which do not release their partitions.

use std::{collections::BTreeMap, time::Duration};

use keylane::{
    admin::{InstanceId, InstanceState},
    inner::Member,
    partition::PartitionSet,
    rules::liveness::Observations,
};
use proptest::{collection::vec, prelude::*};

use super::{assignment::id, millis};

const STALE: Duration = Duration::from_secs(30);
const GAP: Duration = Duration::from_secs(20);

fn member(number: usize, beat: u128) -> Member {
    Member { id: id(number), state: InstanceState::Active, beat: i64::try_from(beat).unwrap_or(i64::MAX) }
}

/// The times of some views, with pauses of up to `longest` milliseconds between them.
fn moments(longest: u64) -> impl Strategy<Value = Vec<Duration>> {
    vec(millis(1..=longest), 1..40).prop_map(|pauses| {
        let add = |now: &mut Duration, pause| {
            *now += pause;
            Some(*now)
        };
        pauses.into_iter().scan(Duration::ZERO, add).collect()
    })
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn a_beating_member_is_never_suspected(moments in moments(60_000), period in millis(1..=29_999)) {
        let mut seen = Observations::default();
        for now in moments {
            let beat = now.as_millis() / period.as_millis();
            prop_assert_eq!(seen.observe(&[member(0, beat)], now, STALE, GAP).0, vec![]);
        }
    }

    /// After an interruption no instance is suspected before the observer has watched it for the whole
    /// timeout again.
    #[test]
    fn an_interrupted_observer_starts_afresh(moments in moments(40_000)) {
        let mut seen = Observations::default();
        let (mut before, mut afresh) = (None, Duration::ZERO);
        for now in moments {
            let (suspects, interrupted) = seen.observe(&[member(0, 7), member(1, 7)], now, STALE, GAP);
            prop_assert_eq!(interrupted, before.is_some_and(|before| now - before > GAP));
            if interrupted || before.is_none() {
                afresh = now;
            }
            before = Some(now);
            let watched = now - afresh;
            prop_assert_eq!(suspects.len(), if watched >= STALE { 2 } else { 0 });
            for suspect in suspects {
                prop_assert_eq!((suspect.beat, suspect.silent_for), (7, watched));
            }
        }
    }

    /// The one silent instance is found among those that beat.
    #[test]
    fn only_the_silent_are_suspected(moments in moments(20_000), silent_from in millis(0..=100_000)) {
        let mut seen = Observations::default();
        for now in moments {
            let last_beat = now.min(silent_from).as_millis();
            let members = [member(0, now.as_millis()), member(1, last_beat), member(2, now.as_millis())];
            let suspects: Vec<InstanceId> =
                seen.observe(&members, now, STALE, GAP).0.iter().map(|suspect| suspect.id).collect();
            prop_assert!(suspects.is_empty() || suspects == [id(1)]);
            prop_assert!(suspects.is_empty() || now >= silent_from + STALE);
            // The observer may have had a view just before the last beat, and gets the next one within 20 s.
            prop_assert!(!suspects.is_empty() || now < silent_from + STALE + GAP);
        }
    }

    #[test]
    fn those_who_have_left_are_not_watched(moments in moments(20_000), dead: bool) {
        let state = if dead { InstanceState::Dead } else { InstanceState::Stopped };
        let mut seen = Observations::default();
        for now in moments {
            let left = Member { state, ..member(0, 7) };
            prop_assert_eq!(seen.observe(&[left], now, STALE, GAP).0, vec![]);
        }
    }

    /// An instance is overdue if it has kept a partition without a break for the whole limit.
    #[test]
    fn only_who_holds_on_is_overdue(steps in vec((millis(1..=20_000), any::<bool>()), 1..40)) {
        let mut seen = Observations::default();
        let (mut now, mut since) = (Duration::ZERO, None);
        for (pause, holds) in steps {
            now += pause;
            since = holds.then(|| since.unwrap_or(now));
            let holders: BTreeMap<_, _> = holds.then(|| (id(0), PartitionSet::ALL)).into_iter().collect();
            let overdue = seen.overdue(&holders, now, STALE);
            prop_assert_eq!(!overdue.is_empty(), since.is_some_and(|since| now - since >= STALE));
        }
    }
}
