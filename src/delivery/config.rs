//! The settings of delivery.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{record::OnFailure, rules::pacing::FetchLimits};

/// How an instance fetches, calls handlers and retries. Key `delivery` of the settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DeliveryConfig {
    /// The longest pause between two fetches when nothing wakes the poller. Default 2 s. A commit in the same
    /// process and a notification wake it; without notifications, fetches are closer together while there are
    /// records of other processes. A longer time saves statements of idle instances; a shorter one shortens
    /// the wait of the first record after a silence.
    #[serde(with = "crate::duration::poll_interval")]
    pub poll_interval: Duration,
    /// The length of the lease of a claimed record, in claimed mode. Default 30 s. A lease is renewed while its
    /// record waits or its handler runs. After a crash, the records of the process come again once their leases
    /// have ended. A shorter lease brings them sooner; a longer one outlasts longer pauses of a process.
    #[serde(with = "crate::duration::claim_lease")]
    pub claim_lease: Duration,
    /// The most records per fetch or claim. Default 1000. Raise it for fewer round trips; lower it if payloads
    /// are large. [`max_in_flight`](field@Self::max_in_flight) must be at least as large.
    pub batch_size: usize,
    /// The most records in memory. Default 4000. The last quarter is kept for partitions that have nothing in
    /// memory. The calls of one of several handlers hold at most about a third of them. Raise it together with
    /// [`concurrency`](field@Self::concurrency) for slow handlers.
    pub max_in_flight: usize,
    /// The most payload bytes in memory. Default 64 MiB. Lower it to save memory; raise it for large payloads.
    /// A single larger record is still delivered, alone.
    pub max_in_flight_bytes: usize,
    /// The most handler calls at once in this process. Default 256. One of several handlers gets at most three
    /// quarters of them. Raise it for handlers that wait much; lower it to protect what they call. A handler can
    /// have a lower limit of its own.
    pub concurrency: usize,
    /// The most transactional handler calls at once. Default 4. One of several transactional handlers leaves one of
    /// them to the others. Raise it for slow transactional handlers. Each call holds a connection of the pool,
    /// which needs one connection more than this number.
    pub transactional_concurrency: usize,
    /// How long one handler call may take. Default 30 s. A handler can set its own. With
    /// [`DatabaseConfig::call_timeout`](crate::DatabaseConfig::call_timeout) it must fit into
    /// [`ClusterConfig::handover_timeout`](crate::ClusterConfig::handover_timeout).
    #[serde(with = "crate::duration::handler_timeout")]
    pub handler_timeout: Duration,
    /// Whether a failing record stops the later ones of its key. Default true. With false, later records
    /// overtake the failing one, and the order of the key is given up around it.
    pub stop_on_first_failure: bool,
    /// How many crashes of its process a record may meet while it is handled; then it has failed. Default 3,
    /// counted from the second crash of a partition's owner on. With 0 such a record is always tried again.
    /// Raise it if processes are often killed for other reasons.
    pub max_crashes: u32,
    /// What becomes of a key whose record has failed for good. Default: `block` with stop-on-first-failure,
    /// else `continue`. Set `continue` if the key may go on without the record.
    pub on_failure: Option<OnFailure>,
}

impl DeliveryConfig {
    /// The limits of the memory.
    pub(super) fn memory(&self) -> FetchLimits {
        FetchLimits {
            batch_size: self.batch_size,
            max_in_flight: self.max_in_flight,
            max_in_flight_bytes: self.max_in_flight_bytes,
        }
    }
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(2),
            claim_lease: Duration::from_secs(30),
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
    /// What is wrong for claimed mode.
    pub(crate) fn problems_of_claims(&self, call_timeout: Duration, problems: &mut Vec<String>) {
        let (lease, poll) = (self.claim_lease, self.poll_interval);
        let least = call_timeout.max(poll).saturating_mul(2);
        if lease < least {
            problems.push(format!(
                "delivery.claim_lease is {lease:?}, but must be at least twice database.call_timeout and twice \
                 delivery.poll_interval ({least:?}): a lease must not end while its renewal is under way"
            ));
        }
        if self.on_failure == Some(OnFailure::Block) {
            problems.push(
                "delivery.on_failure is block, but in claimed mode the records of a key have no order, so none can wait: \
                 leave it out"
                    .to_owned(),
            );
        }
    }

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
