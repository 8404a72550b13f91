//! Records that crash their process: how crashes count against records.
//!
//! A crash does not name its cause, so it counts against all work of the process. The evictor counts the
//! crash for each partition of the instance. From the second crash on, calls in the partition are tracked,
//! and the next crash counts against the tracked calls that had not ended. Such a record runs alone, because
//! each further crash then counts against one record only.

/// The number of crashes of a partition's owners from which on its calls are tracked.
const TRACKED_FROM: u32 = 2;

/// How careful a record is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Care {
    /// Like any other record.
    #[default]
    Usual,
    /// The call is tracked.
    Tracked,
    /// The call is tracked, and no other record with this care runs in the instance meanwhile.
    Alone,
}

/// How to run a record that `crashes` crashes count against, in a partition with `partition_crashes` crashes.
/// If `limit` is 0, no call is tracked.
pub fn care(partition_crashes: u32, crashes: u32, limit: u32) -> Care {
    match (partition_crashes, crashes) {
        _ if limit == 0 => Care::Usual,
        (_, 1..) => Care::Alone,
        (TRACKED_FROM.., 0) => Care::Tracked,
        _ => Care::Usual,
    }
}

/// Whether so many crashes count against a record that it is not tried again.
pub fn is_spent(crashes: u32, limit: u32) -> bool {
    limit > 0 && crashes >= limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_tracked_from_the_second_crash_on() {
        assert_eq!(
            [0, 1, 2, 3].map(|crashes| care(crashes, 0, 3)),
            [Care::Usual, Care::Usual, Care::Tracked, Care::Tracked]
        );
    }

    #[test]
    fn what_a_crash_has_met_runs_alone_even_when_its_partition_is_calm() {
        assert_eq!(care(0, 1, 3), Care::Alone);
        assert_eq!(care(9, 2, 3), Care::Alone);
    }

    #[test]
    fn a_record_is_given_up_at_the_limit() {
        assert!(!is_spent(2, 3) && is_spent(3, 3) && is_spent(4, 3));
    }

    #[test]
    fn without_a_limit_nothing_is_tracked_and_nothing_given_up() {
        assert_eq!(care(9, 9, 0), Care::Usual);
        assert!(!is_spent(9, 0));
    }
}
