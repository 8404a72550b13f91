//! A token bucket, as a function of its state and the time.

use std::time::Duration;

use super::Limit;

/// A difference that does not count: additions of fractions lose as much.
const ROUNDING: f64 = 1e-9;

/// The state of a bucket: how many tokens it had, and when that was, in microseconds of any clock.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bucket {
    /// How many tokens it had.
    pub tokens: f64,
    /// When it had them.
    pub refilled_at: u64,
}

/// The outcome of taking a token.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Taken {
    /// Whether there was a token.
    pub allowed: bool,
    /// The tokens that are left.
    pub tokens: f64,
}

impl Bucket {
    /// A new bucket is full.
    pub fn full(limit: Limit, now: u64) -> Self {
        Self { tokens: f64::from(limit.capacity()), refilled_at: now }
    }

    /// Refills the bucket up to now, and takes a token if there is one. A clock that went back brings no tokens.
    pub fn take(self, limit: Limit, now: u64) -> (Self, Taken) {
        let elapsed = now.saturating_sub(self.refilled_at) as f64;
        let tokens = f64::from(limit.capacity()).min(self.tokens + elapsed * limit.rate);
        let allowed = tokens >= 1.0 - ROUNDING;
        let tokens = if allowed { tokens - 1.0 } else { tokens };
        (Self { tokens, refilled_at: now }, Taken { allowed, tokens })
    }
}

impl Taken {
    /// The answer of a store.
    pub fn new(allowed: bool, tokens: f64) -> Self {
        Self { allowed, tokens }
    }

    /// How many requests may come now.
    pub fn remaining(&self) -> u64 {
        (self.tokens + ROUNDING) as u64
    }

    /// The time until there is a token.
    pub fn until_next(&self, limit: Limit) -> Duration {
        self.until(limit, 1.0)
    }

    /// The time until the bucket is full.
    pub fn until_full(&self, limit: Limit) -> Duration {
        self.until(limit, f64::from(limit.capacity()))
    }

    fn until(&self, limit: Limit, wanted: f64) -> Duration {
        // The rate of a limit that was not checked may be zero: the time is then infinite, and the conversion caps
        // it.
        Duration::from_micros(((wanted - self.tokens).max(0.0) / limit.rate).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_burst_is_cut_at_the_capacity_and_tokens_come_back() {
        let limit = Limit::per_second(10).burst(3);
        let mut bucket = Bucket::full(limit, 0);
        let mut take = |now| {
            let (next, taken) = bucket.take(limit, now);
            bucket = next;
            (taken.allowed, taken.remaining())
        };
        assert_eq!([take(0), take(0), take(0), take(0)], [(true, 2), (true, 1), (true, 0), (false, 0)]);
        // The tokens that came before a refusal are counted once.
        assert_eq!([take(99_999), take(100_000), take(150_000)], [(false, 0), (true, 0), (false, 0)]);
        assert_eq!(take(100 * SECOND), (true, 2));
    }

    #[test]
    fn a_clock_that_goes_back_brings_nothing() {
        let limit = Limit::per_second(1);
        let (bucket, taken) = Bucket::full(limit, 10 * SECOND).take(limit, 9 * SECOND);
        assert!(taken.allowed);
        let (bucket, taken) = bucket.take(limit, 9 * SECOND);
        assert!(!taken.allowed);
        assert!(bucket.take(limit, 10 * SECOND).1.allowed);
    }

    #[test]
    fn waits_end_when_the_token_is_there() {
        let limit = Limit::per_minute(1);
        let (bucket, _) = Bucket::full(limit, 0).take(limit, 0);
        let (bucket, refused) = bucket.take(limit, SECOND);
        assert_eq!(refused.until_next(limit), Duration::from_secs(59));
        assert_eq!(refused.until_full(limit), Duration::from_secs(59));
        assert!(bucket.take(limit, 60 * SECOND).1.allowed);
        assert_eq!(Taken::new(false, 0.0).until_next(Limit::per_second(0)), Duration::from_micros(u64::MAX));
    }
}
