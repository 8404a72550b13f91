//! How long an instance may trust its last acknowledged heartbeat.
//!
//! An observer may declare an instance dead no earlier than the stale timeout after the observer last saw the
//! beat move, and a beat cannot be seen before it was sent. The deadline therefore counts from when the last
//! acknowledged heartbeat was *sent*, not from its reply, less a margin for clock rates and for the work
//! between the check and its effect.

use std::time::Duration;

/// The margin subtracted from the stale timeout: a tenth of it.
pub fn margin(stale_timeout: Duration) -> Duration {
    stale_timeout / 10
}

/// The end of the lease, on the clock of `sent_at`: until then the instance may act on its ownership.
pub fn trusted_until(sent_at: Duration, stale_timeout: Duration) -> Duration {
    sent_at + stale_timeout.saturating_sub(margin(stale_timeout))
}

/// The longest time for which a partition may be held after another instance has asked for it: a call that
/// has just begun runs to its timeout, and then its outcome is written. Meanwhile nothing else begins but a
/// fallback that [fits](fallback_fits) into the same time. A transactional handler is followed by two calls
/// of the database, the completion and the commit.
pub fn longest_hold(timeout: Duration, call_timeout: Duration, transactional: bool) -> Duration {
    timeout.saturating_add(call_timeout * if transactional { 2 } else { 1 })
}

/// Whether a fallback may be called if another instance has asked for the partition during the handler's
/// call. The duration of that call and the timeout of the fallback must not exceed `limit` together.
pub fn fallback_fits(took: Duration, timeout: Duration, limit: Duration) -> bool {
    took.saturating_add(timeout) <= limit
}

/// Whether the wall clock has advanced more than the monotonic clock by more than the tolerance: the process
/// or its machine was stopped, and the monotonic clock did not count the time.
///
/// Each pair is `(wall, monotonic)`.
pub fn clocks_jumped(before: (Duration, Duration), after: (Duration, Duration), tolerance: Duration) -> bool {
    let wall = after.0.saturating_sub(before.0);
    let monotonic = after.1.saturating_sub(before.1);
    wall.saturating_sub(monotonic) > tolerance
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn trust_ends_before_others_may_evict() {
        assert_eq!(trusted_until(s(100), s(30)), s(127));
    }

    #[test]
    fn what_is_held_longest_is_a_call_with_its_writes() {
        assert_eq!(longest_hold(s(30), s(5), false), s(35));
        assert_eq!(longest_hold(s(30), s(5), true), s(40));
    }

    #[test]
    fn a_fallback_fits_if_nobody_waits_too_long_for_it() {
        assert!(fallback_fits(s(5), s(30), s(35)));
        assert!(!fallback_fits(s(6), s(30), s(35)));
    }

    #[test]
    fn a_forward_jump_of_the_wall_clock_is_seen() {
        assert!(clocks_jumped((s(1000), s(10)), (s(1060), s(20)), s(1)));
        assert!(!clocks_jumped((s(1000), s(10)), (s(1010), s(20)), s(1)));
        assert!(!clocks_jumped((s(1000), s(10)), (s(1011), s(20)), s(1)), "just as much is tolerated");
    }

    #[test]
    fn a_wall_clock_set_back_is_no_pause() {
        assert!(!clocks_jumped((s(1000), s(10)), (s(995), s(20)), s(1)));
        assert!(!clocks_jumped((s(1000), s(10)), (s(900), s(20)), s(1)));
    }
}
