//! The settings of delivery.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::record::OnFailure;

/// How records are delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DeliveryConfig {
    /// The longest pause between two fetches when nothing wakes the poller. Where no notification tells of the
    /// commits of other processes, fetches are closer together while there are any.
    #[serde(with = "crate::duration::poll_interval")]
    pub poll_interval: Duration,
    /// Records a fetch at most.
    pub batch_size: usize,
    /// Records in memory at most; the last quarter is kept for partitions that have nothing in it.
    pub max_in_flight: usize,
    /// Payload bytes in memory at most; one larger record still goes, alone.
    pub max_in_flight_bytes: usize,
    /// Handler calls at once.
    pub concurrency: usize,
    /// Transactional handler calls at once; each holds a connection of the pool.
    pub transactional_concurrency: usize,
    /// How long one handler call may take; handlers can set their own.
    #[serde(with = "crate::duration::handler_timeout")]
    pub handler_timeout: Duration,
    /// A failing record stops the later ones of its key.
    pub stop_on_first_failure: bool,
    /// Crashes of its process that a record may meet while it is handled: at so many it has failed. 0: it is
    /// tried for ever.
    pub max_crashes: u32,
    /// What becomes of a key whose record has failed for good. Not given: `block` with
    /// stop-on-first-failure, else `continue`.
    pub on_failure: Option<OnFailure>,
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(2),
            batch_size: 1000,
            max_in_flight: 4000,
            max_in_flight_bytes: 64 * 1024 * 1024,
            concurrency: 256,
            transactional_concurrency: 4,
            handler_timeout: Duration::from_secs(30),
            stop_on_first_failure: true,
            max_crashes: 3,
            on_failure: None,
        }
    }
}

impl DeliveryConfig {
    pub(crate) fn problems(&self, problems: &mut Vec<String>) {
        let counts = [
            ("delivery.batch_size", self.batch_size, 10_000),
            ("delivery.max_in_flight", self.max_in_flight, 100_000),
            ("delivery.concurrency", self.concurrency, 100_000),
            ("delivery.transactional_concurrency", self.transactional_concurrency, 1_000),
        ];
        for (name, value, most) in counts.into_iter().filter(|(_, value, most)| !(1..=*most).contains(value))
        {
            problems.push(format!("{name} is {value}, but must be from 1 to {most}"));
        }
        if self.max_in_flight < self.batch_size {
            problems.push(format!(
                "delivery.max_in_flight is {}, but must be at least delivery.batch_size ({})",
                self.max_in_flight, self.batch_size
            ));
        }
        if self.max_in_flight_bytes == 0 {
            problems.push("delivery.max_in_flight_bytes is 0, but must be at least 1".to_owned());
        }
    }
}
