//! How many records to fetch, and when to fetch again.

use std::time::Duration;

use crate::partition::PARTITION_COUNT;

/// The limits of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// The most records per fetch.
    pub batch_size: usize,
    /// The most records in flight.
    pub max_in_flight: usize,
    /// The most payload bytes in flight.
    pub max_in_flight_bytes: usize,
}

/// The number of records to fetch next, 0 if memory is full.
///
/// `mean_bytes` is the mean payload of recent records in bytes. The byte limit is kept by fetching fewer
/// records.
pub fn fetch_size(limits: FetchLimits, in_flight: usize, in_flight_bytes: usize, mean_bytes: usize) -> usize {
    let slots = limits.max_in_flight.saturating_sub(in_flight);
    let bytes = limits.max_in_flight_bytes.saturating_sub(in_flight_bytes);
    let by_bytes = bytes / mean_bytes.max(1);
    // If no record is in flight, one is fetched, even a large one, so that no record waits without end.
    let least = usize::from(in_flight == 0);
    limits.batch_size.min(slots).min(by_bytes).max(least)
}

/// The processor time that one task of runs should take.
const TASK_TIME: Duration = Duration::from_micros(500);
/// The most runs per task.
const TASK_RUNS: usize = 128;
/// The most runs per task if runs wait: what they do after their waits is not in [`Pace::mean`], and one
/// processor at a time does it for all of them.
const WAITING_RUNS: usize = 32;

/// The pace of recent runs.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The mean processor time per run, until its end or its first wait.
    pub mean: Duration,
    /// Whether a run has waited.
    pub waits: bool,
}

/// The number of runs per task. A task per run would cost more than a short run does, and long runs must not
/// queue behind one another.
pub fn runs_per_task(pace: Pace) -> usize {
    let runs = TASK_TIME.as_nanos() / pace.mean.as_nanos().max(1);
    let most = if pace.waits { WAITING_RUNS } else { TASK_RUNS };
    usize::try_from(runs).unwrap_or(usize::MAX).clamp(1, most)
}

/// The pause before the next fetch if nothing wakes the poller: the interval, changed by up to a tenth by
/// `roll` (0 to 1), so that replicas do not poll in step.
pub fn pause(poll_interval: Duration, roll: f64) -> Duration {
    poll_interval.mul_f64(0.9 + 0.2 * roll.clamp(0.0, 1.0))
}

/// The shortest pause between fetches for records of other processes, and the divisor of their silence.
const SHORTEST: Duration = Duration::from_millis(5);
const PART: u32 = 4;

/// The pause before the next fetch for records of other processes, if no notification tells of them. The
/// pause grows with the time since their last record: a record waits for at most a quarter of the time since
/// the record before it, and a silence of any length takes a few dozen fetches until the pause is a poll
/// interval again.
pub fn pause_of_silence(silence: Duration, poll_interval: Duration) -> Duration {
    (silence / PART).max(SHORTEST).min(poll_interval)
}

/// The pause between two steps of releases while other lanes are busy, and the part of memory above which
/// they count as busy.
const STEP_PAUSE: Duration = Duration::from_millis(200);
const BUSY_PART: usize = 8;

/// The pause between two steps of releases, with `in_flight` records in memory. Held records that return in
/// steps cost time of the database and of this process: while other lanes are busy, each step waits.
pub fn step_pause(in_flight: usize, max_in_flight: usize) -> Duration {
    if in_flight > max_in_flight / BUSY_PART { STEP_PAUSE } else { Duration::ZERO }
}

/// The first and the longest pause between tries while the database is unreachable.
const FIRST_TRY: Duration = Duration::from_millis(100);
const LAST_TRY: Duration = Duration::from_secs(5);

/// The pause after `tries` failed tries to reach the database. It doubles up to a limit, and `roll` (0 to 1)
/// removes up to half of it, so that replicas do not return in step.
pub fn pause_after(tries: u32, roll: f64) -> Duration {
    let doubled = FIRST_TRY.saturating_mul(1 << tries.saturating_sub(1).min(16));
    doubled.min(LAST_TRY).mul_f64(1.0 - 0.5 * roll.clamp(0.0, 1.0))
}

/// The longest time of a search for the head.
const SEARCH_TIME: Duration = Duration::from_millis(50);
/// The fewest partitions per search for the head, so that a slow network does not stop the search.
pub const LEAST_SEARCH: usize = 4;

/// The number of partitions per search for a head, after a search of `partitions` partitions that took this
/// long.
pub fn partitions_per_search(partitions: usize, took: Duration) -> usize {
    let fit = SEARCH_TIME.as_nanos().saturating_mul(partitions as u128) / took.as_nanos().max(1);
    usize::try_from(fit).unwrap_or(PARTITION_COUNT).clamp(LEAST_SEARCH, PARTITION_COUNT)
}

/// The largest multiple of its limit that a read is given.
const MOST_PATIENCE: u32 = 16;

/// The next multiple of the limit of a call that a read is given, after it was given `times`: doubled if the
/// read got no reply in that time, one if it got a reply within the limit, else unchanged.
pub fn patience(times: u32, limit: Duration, took: Duration, answered: bool) -> u32 {
    // The limit of the server may end the read shortly before the limit of this process.
    let in_vain = !answered && took >= (limit * times).mul_f64(0.9);
    match (in_vain, answered && took <= limit) {
        (true, _) => (times * 2).min(MOST_PATIENCE),
        (_, true) => 1,
        _ => times,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FetchLimits =
        FetchLimits { batch_size: 500, max_in_flight: 1000, max_in_flight_bytes: 1_000_000 };

    #[test]
    fn a_fetch_is_cut_by_the_tightest_limit() {
        assert_eq!(fetch_size(LIMITS, 0, 0, 100), 500);
        assert_eq!(fetch_size(LIMITS, 800, 0, 100), 200);
        assert_eq!(fetch_size(LIMITS, 1, 0, 100_000), 10);
        assert_eq!(fetch_size(LIMITS, 1000, 0, 100), 0);
    }

    #[test]
    fn one_record_larger_than_the_budget_still_goes() {
        assert_eq!(fetch_size(LIMITS, 0, 0, 5_000_000), 1);
        assert_eq!(fetch_size(LIMITS, 1, 5_000_000, 5_000_000), 0);
    }

    #[test]
    fn short_runs_share_a_task_and_long_ones_do_not() {
        let runs = |micros, waits| runs_per_task(Pace { mean: Duration::from_micros(micros), waits });
        assert_eq!([0, 2, 100, 20_000].map(|micros| runs(micros, false)), [128, 128, 5, 1]);
        assert_eq!([0, 2, 100, 20_000].map(|micros| runs(micros, true)), [32, 32, 5, 1]);
    }

    #[test]
    fn a_read_is_given_more_time_until_it_is_answered_and_then_as_long_as_it_takes_more() {
        let limit = Duration::from_secs(5);
        let in_vain = |times: u32| patience(times, limit, limit * times, false);
        assert_eq!([1, 2, 4, 8, 16].map(in_vain), [2, 4, 8, 16, 16]);
        assert_eq!(patience(4, limit, limit * 3, true), 4, "the next one takes as long");
        assert_eq!(patience(4, limit, limit / 5, true), 1);
        assert_eq!(patience(4, limit, limit, false), 4, "something else was wrong");
    }

    #[test]
    fn tries_to_reach_the_database_are_further_and_further_apart() {
        let whole = |tries| pause_after(tries, 0.0).as_millis();
        assert_eq!([0, 1, 2, 3, 6].map(whole), [100, 100, 200, 400, 3_200]);
        assert_eq!([7, 40, u32::MAX].map(whole), [5_000; 3]);
        assert_eq!(pause_after(2, 1.0), Duration::from_millis(100));
        assert_eq!(pause_after(7, 0.5), Duration::from_millis(3_750));
    }

    #[test]
    fn the_pause_is_spread_around_the_interval() {
        let second = Duration::from_secs(1);
        assert_eq!(pause(second, 0.0), Duration::from_millis(900));
        assert_eq!(pause(second, 1.0), Duration::from_millis(1100));
    }

    #[test]
    fn fetches_for_the_records_of_others_are_a_part_of_their_silence_apart() {
        let [silence, interval] = [Duration::from_millis, Duration::from_millis];
        let pause = |of, longest| pause_of_silence(silence(of), interval(longest)).as_millis();
        assert_eq!([0, 20, 100, 4_000, 90_000].map(|of| pause(of, 2_000)), [5, 5, 25, 1_000, 2_000]);
        assert_eq!(pause(0, 1), 1, "no further apart than polls");
    }

    #[test]
    fn a_search_is_in_as_many_partitions_as_fit_into_its_time() {
        let of = |partitions, took| partitions_per_search(partitions, Duration::from_millis(took));
        assert_eq!([of(100, 100), of(256, 1_000), of(16, 20)], [50, 12, 40]);
        assert_eq!(of(4, 60_000), LEAST_SEARCH, "however slow");
        assert_eq!([of(10, 1), of(7, 0)], [PARTITION_COUNT; 2], "however fast");
    }

    #[test]
    fn steps_are_paced_while_others_are_busy() {
        assert_eq!(step_pause(0, 4_000), Duration::ZERO);
        assert_eq!(step_pause(500, 4_000), Duration::ZERO);
        assert_eq!(step_pause(501, 4_000), Duration::from_millis(200));
    }

    #[test]
    fn a_silence_takes_few_fetches() {
        let interval = Duration::from_secs(2);
        let (mut silence, mut fetches) = (Duration::ZERO, 0);
        while pause_of_silence(silence, interval) < interval {
            silence += pause_of_silence(silence, interval);
            fetches += 1;
        }
        assert!(fetches <= 40, "{fetches}");
    }
}
