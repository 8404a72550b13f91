//! How often a handler may be called.
//!
//! The rule is the generic cell rate algorithm (ITU-T I.371): calls are one interval apart on average, and
//! some may come early. Its state is one number, the time until which the calls so far are paid for.

use std::time::Duration;

/// The divisor of a period's calls that gives the size of a burst.
const BURST_PART: u32 = 10;

/// A limit on the calls per period, on average; see [`Registration::rate`](crate::Registration::rate).
///
/// A tenth of the calls, at least one, may come at once. A period therefore has at most eleven tenths of the
/// calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    calls: u32,
    period: Duration,
}

impl Rate {
    /// At most `calls` calls per `period`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::handler::Rate;
    ///
    /// assert_eq!(Rate::new(50, Duration::from_secs(1)), Rate::per_second(50));
    /// ```
    pub const fn new(calls: u32, period: Duration) -> Self {
        Self { calls, period }
    }

    /// At most `calls` calls per second.
    pub const fn per_second(calls: u32) -> Self {
        Self::new(calls, Duration::from_secs(1))
    }

    /// At most `calls` calls per minute.
    pub const fn per_minute(calls: u32) -> Self {
        Self::new(calls, Duration::from_secs(60))
    }

    /// Why the rate is not valid, or `None`.
    pub(crate) fn problem(&self) -> Option<String> {
        let Self { calls, period } = self;
        let is_good = *calls > 0 && !period.is_zero();
        (!is_good).then(|| format!("rate is {calls} calls in {period:?}, but both must be more than zero"))
    }

    /// Takes a call at `now`, if the calls so far are paid for until `paid_to`. Returns the time until which
    /// the calls are paid for, this one included. All times count from the same moment.
    ///
    /// # Errors
    /// The time from which on the call may begin.
    pub fn take(&self, paid_to: Duration, now: Duration) -> Result<Duration, Duration> {
        let interval = self.period / self.calls.max(1);
        let burst = self.calls.div_ceil(BURST_PART).max(1);
        let may_begin = paid_to.saturating_sub(interval * (burst - 1));
        if may_begin > now { Err(may_begin) } else { Ok(paid_to.max(now) + interval) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rate_without_a_burst_spaces_its_calls() {
        let rate = Rate::per_second(4);
        let [start, quarter] = [Duration::ZERO, Duration::from_millis(250)];
        assert_eq!(rate.take(start, start), Ok(quarter));
        assert_eq!(rate.take(quarter, start), Err(quarter));
        assert_eq!(rate.take(quarter, quarter), Ok(quarter * 2));
        assert_eq!(rate.take(quarter, quarter * 40), Ok(quarter * 41), "time that has gone by is not saved");
    }

    #[test]
    fn a_rate_of_nothing_is_refused() {
        let second = Duration::from_secs(1);
        assert_eq!(Rate::new(1, Duration::from_nanos(1)).problem(), None);
        for (rate, told) in
            [(Rate::new(0, second), "0 calls in 1s"), (Rate::new(5, Duration::ZERO), "5 calls in 0ns")]
        {
            assert!(rate.problem().is_some_and(|problem| problem.contains(told)), "{told}");
        }
        assert_eq!(Rate::per_minute(6), Rate::new(6, 60 * second));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// However calls are asked for, no period has more than its calls and their burst. A caller that asks
        /// all the time gets all its calls.
        #[test]
        fn no_period_has_too_many_calls(calls in 1_u32..60, pauses in prop::collection::vec(0_u64..40, 1..400)) {
            let (rate, period) = (Rate::per_second(calls), Duration::from_secs(1));
            let (mut now, mut paid_to, mut begun) = (Duration::ZERO, Duration::ZERO, Vec::new());
            for pause in pauses {
                now += Duration::from_millis(pause);
                match rate.take(paid_to, now) {
                    Ok(paid) => {
                        paid_to = paid;
                        begun.push(now);
                    }
                    Err(may_begin) => {
                        prop_assert!(may_begin > now);
                        prop_assert!(rate.take(paid_to, may_begin).is_ok());
                    }
                }
            }
            let most = calls + calls.div_ceil(BURST_PART);
            for (first, start) in begun.iter().enumerate() {
                let within = begun[first..].iter().take_while(|at| **at < *start + period).count();
                prop_assert!(within <= most as usize, "{within} calls in a period of {calls}");
            }
        }
    }
}
