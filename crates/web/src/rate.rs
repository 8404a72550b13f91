//! Rate limits: a token bucket per name and subject, shared by all processes through a store, or local to one.

mod address;
mod bucket;
mod layer;
mod local;
#[cfg(feature = "redis")]
mod redis;

use std::time::Duration;

use futures::future::BoxFuture;

pub use address::{BadNetwork, TrustedProxies};
pub use bucket::{Bucket, Taken};
pub use layer::{RateLimitBuilder, RateLimitLayer, RateLimitService, WhenAway};

use crate::error::{SettingError, StoreError};

/// The most tokens of a bucket.
pub(crate) const LARGEST_CAPACITY: u32 = 1_000_000;
/// The longest time in which one token comes.
pub(crate) const SLOWEST: Duration = Duration::from_secs(86_400);

/// How many requests may come: a number at once, and after that one for each new token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Tokens per microsecond.
    pub(crate) rate: f64,
    pub(crate) capacity: u32,
}

impl Limit {
    /// This many requests per second, and as many at once.
    pub const fn per_second(requests: u32) -> Self {
        Self::per(requests, Duration::from_secs(1))
    }

    /// This many requests per minute, and as many at once.
    pub const fn per_minute(requests: u32) -> Self {
        Self::per(requests, Duration::from_secs(60))
    }

    const fn per(requests: u32, period: Duration) -> Self {
        Self { rate: requests as f64 / period.as_micros() as f64, capacity: requests }
    }

    /// How many requests may come at once, after a silence: the capacity of the bucket.
    #[must_use]
    pub const fn burst(mut self, requests: u32) -> Self {
        self.capacity = requests;
        self
    }

    /// How many requests may come at once.
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How long the state of an unused bucket is kept: twice the time in which the bucket fills, and a second.
    pub(crate) fn kept_seconds(&self) -> u64 {
        (f64::from(self.capacity) / self.rate * 2.0 / 1e6) as u64 + 1
    }

    pub(crate) fn check(&self) -> Result<(), SettingError> {
        let slowest = 1.0 / SLOWEST.as_micros() as f64;
        match (1..=LARGEST_CAPACITY).contains(&self.capacity) && self.rate >= slowest {
            true => Ok(()),
            false => Err(SettingError::Limit { capacity: self.capacity, per_second: self.rate * 1e6 }),
        }
    }
}

/// A store of buckets that several processes share.
pub trait BucketStore: Send + Sync + 'static {
    /// Takes a token of the bucket of this key, by the store's own clock.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot say. Whether it has taken the token is then not known.
    ///
    /// # Cancel safety
    /// If it is dropped, the token may have been taken.
    fn take<'a>(&'a self, key: &'a str, limit: Limit) -> BoxFuture<'a, Result<Taken, StoreError>>;
}
