//! How many records to fetch, and when to fetch again.

use std::time::Duration;

use keylane::rules::pacing::{FetchLimits, fetch_size, pause, pause_of_silence};
use proptest::prelude::*;

fn limits() -> impl Strategy<Value = FetchLimits> {
    (1..10_000_usize, 1..10_000_usize, 1..100_000_000_usize).prop_map(
        |(batch_size, max_in_flight, max_in_flight_bytes)| FetchLimits {
            batch_size,
            max_in_flight,
            max_in_flight_bytes,
        },
    )
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn a_fetch_keeps_all_limits(
        limits in limits(), in_flight in 0..20_000_usize, bytes in 0..200_000_000_usize, mean in 0..1_000_000_usize,
    ) {
        let size = fetch_size(limits, in_flight, bytes, mean);
        prop_assert!(size <= limits.batch_size);
        prop_assert!(in_flight + size <= limits.max_in_flight.max(in_flight));
        // Only if nothing is in flight may one record exceed the limit of bytes.
        let within = bytes + size * mean <= limits.max_in_flight_bytes;
        prop_assert!(size == 0 || within || (size == 1 && in_flight == 0));
    }

    #[test]
    fn an_empty_pipeline_always_fetches(limits in limits(), bytes: usize, mean: usize) {
        prop_assert!(fetch_size(limits, 0, bytes, mean) >= 1);
    }

    /// A fetch is as large as the limits allow.
    #[test]
    fn a_fetch_is_as_large_as_the_limits_allow(
        limits in limits(), in_flight in 1..10_000_usize, bytes in 0..100_000_000_usize, mean in 1..100_000_usize,
    ) {
        let more = fetch_size(limits, in_flight, bytes, mean) + 1;
        prop_assert!(
            more > limits.batch_size
                || in_flight + more > limits.max_in_flight
                || bytes + more * mean > limits.max_in_flight_bytes
        );
    }

    #[test]
    fn a_pause_is_within_a_tenth_of_the_interval(interval in super::millis(1..=3_600_000), roll in -1.0..2.0_f64) {
        let pause = pause(interval, roll);
        prop_assert!(interval.mul_f64(0.899_999) <= pause && pause <= interval.mul_f64(1.100_001));
    }

    /// A record waits for at most a quarter of the silence before it, or for the shortest pause.
    #[test]
    fn a_longer_silence_never_hastens_a_fetch(
        interval in super::millis(1..=3_600_000), silence in super::millis(0..=3_600_000), more in super::millis(0..=3_600_000),
    ) {
        let pause = pause_of_silence(silence, interval);
        prop_assert!(!pause.is_zero() && pause <= interval);
        prop_assert!(pause <= (silence / 4).max(Duration::from_millis(5)));
        prop_assert!(pause_of_silence(silence + more, interval) >= pause);
    }
}
