//! How long an instance may trust its own last heartbeat.

use std::time::Duration;

use keylane::{
    admin::InstanceState,
    inner::Member,
    rules::lease::{clocks_jumped, trusted_until},
    rules::liveness::Observations,
};
use proptest::{collection::vec, prelude::*};

use super::{assignment::id, millis};

/// One minute to ten hours after the start of the clock.
fn moment() -> impl Strategy<Value = Duration> {
    millis(60_000..=36_000_000)
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn trust_ends_before_the_earliest_eviction(sent_at in moment(), stale_timeout in millis(1..=600_000)) {
        let until = trusted_until(sent_at, stale_timeout);
        prop_assert!(sent_at < until && until < sent_at + stale_timeout);
    }

    /// The same for real observers. Whenever they get a view, and if clocks are up to 5 % too fast or too
    /// slow, no instance is suspected that still trusts its lease.
    #[test]
    fn nobody_is_suspected_who_still_trusts_itself(
        sent_at in moment(),
        stale_timeout in millis(1_000..=60_000),
        seen_after in millis(0..=100),
        mut moments in vec(0.8..1.2_f64, 1..10),
        its_rate in 0.95..1.05_f64,
        observers_rate in 0.95..1.05_f64,
    ) {
        let mut observations = Observations::default();
        let mut suspected = |after: Duration| {
            let member = Member { id: id(0), state: InstanceState::Active, beat: 1 };
            let now = sent_at + after.mul_f64(observers_rate);
            !observations.observe(&[member], now, stale_timeout, Duration::MAX).0.is_empty()
        };
        moments.sort_by(f64::total_cmp);
        suspected(seen_after);
        for after in moments.into_iter().map(|share| stale_timeout.mul_f64(share)) {
            let trusted = sent_at + after.mul_f64(its_rate) <= trusted_until(sent_at, stale_timeout);
            prop_assert!(!(trusted && suspected(after)));
        }
    }

    #[test]
    fn clocks_that_agree_have_not_jumped(
        wall in moment(), monotonic in moment(), passed in millis(0..=600_000), apart in millis(0..=999),
    ) {
        let later = (wall + passed + apart, monotonic + passed);
        prop_assert!(!clocks_jumped((wall, monotonic), later, Duration::from_secs(1)));
    }

    #[test]
    fn a_pause_that_the_monotonic_clock_missed_is_seen(
        wall in moment(), monotonic in moment(), passed in millis(0..=600_000), missed in millis(1_001..=600_000),
    ) {
        let later = (wall + passed + missed, monotonic + passed);
        prop_assert!(clocks_jumped((wall, monotonic), later, Duration::from_secs(1)));
    }

    #[test]
    fn a_wall_clock_set_back_is_no_pause(
        wall in moment(), monotonic in moment(), passed in millis(0..=30_000), back in millis(0..=60_000),
    ) {
        let later = (wall.saturating_sub(back), monotonic + passed);
        prop_assert!(!clocks_jumped((wall, monotonic), later, Duration::from_secs(1)));
    }
}
