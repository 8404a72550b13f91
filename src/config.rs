//! Settings: plain structs with serde, defaults and a check that reports all problems at once.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    cluster::ClusterConfig,
    delivery::DeliveryConfig,
    record::{KEY_LIMIT_BYTES, OnFailure},
    rules::{
        lease,
        retry::{LONGEST, RetryPolicy},
    },
    setters::setters,
    store::{Completed, DatabaseConfig, Mode, StoreSettings, Tables},
};

/// All settings of an outbox, from a file or from code. In a file, durations are written as in `5s`, `1m
/// 30s`.
///
/// ```
/// use keylane::{Config, DeliveryConfig, OrderLevel, RetryPolicy, ScheduleConfig};
/// use std::time::Duration;
///
/// let config = Config::default()
///     .table_prefix("billing_outbox_")
///     .schedule(ScheduleConfig::default().order(OrderLevel::Strict))
///     .delivery(DeliveryConfig::default().poll_interval(Duration::from_secs(1)))
///     .retry(RetryPolicy::fixed(Duration::from_secs(5)).max_retries(5));
/// assert_eq!(config.delivery.poll_interval, Duration::from_secs(1));
/// config.validate()?;
/// # Ok::<(), keylane::ConfigError>(())
/// ```
///
/// ```
/// let config: keylane::Config = toml::from_str(r#"
///     table_prefix = "billing_outbox_"
///     [delivery]
///     poll_interval = "1s"
///     [retry]
///     max_retries = 5
/// "#)?;
/// config.validate()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// The start of each table's name: 1 to 32 lower-case letters, digits and underscores. Default `outbox_`.
    /// Change it for a second outbox in one database.
    pub table_prefix: String,
    /// The schema (PostgreSQL) or database (MySQL, MariaDB) of the tables. Default: that of the connection.
    /// Set it if the tables stand elsewhere. SQLite has none.
    pub schema: Option<String>,
    /// How records are delivered: in order per key by instances that share the partitions (`partitioned`, the
    /// default), or without order by instances that claim batches of records (`claimed`). All processes of an
    /// outbox need the same mode.
    pub mode: Mode,
    /// What `schedule` accepts and promises.
    pub schedule: ScheduleConfig,
    /// How records are delivered.
    pub delivery: DeliveryConfig,
    /// How partitions are shared in the cluster.
    pub cluster: ClusterConfig,
    /// The retry policy of handlers without one of their own.
    pub retry: RetryPolicy,
    /// What becomes of completed records.
    pub retention: RetentionConfig,
    /// How the database is used.
    pub database: DatabaseConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            table_prefix: Tables::default().prefix().to_owned(),
            schema: None,
            mode: Mode::default(),
            schedule: ScheduleConfig::default(),
            delivery: DeliveryConfig::default(),
            cluster: ClusterConfig::default(),
            retry: RetryPolicy::default(),
            retention: RetentionConfig::default(),
            database: DatabaseConfig::default(),
        }
    }
}

/// How strongly the order of a key follows the order of commits. The truth table is in
/// `docs/guarantees.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OrderLevel {
    /// If the commit of A returned before B was scheduled, A is delivered first; the order inside
    /// one transaction is kept. Costs nothing.
    #[default]
    Causal,
    /// Does as [`OrderLevel::Causal`]. In addition, transactions that schedule for one key wait for one
    /// another, so that delivery follows the order of commits.
    Strict,
}

/// What `schedule` accepts and promises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ScheduleConfig {
    /// How strongly the order of a key follows the order of commits. Default [`OrderLevel::Causal`].
    pub order: OrderLevel,
    /// The largest encoded payload in bytes. Default 1 MiB. Lower it to keep large data out of the tables.
    /// Workers hold payloads in memory ([`DeliveryConfig::max_in_flight_bytes`]).
    pub max_payload_bytes: usize,
    /// The largest sum of the header names and values of a record, in bytes. Default 8 KiB. Raise it for longer
    /// headers; lower it for a sink with a lower limit.
    pub max_header_bytes: usize,
    /// The greatest age of the list of published handlers that `schedule` uses. Default 10 s. Running
    /// producers schedule for a new handler after this time at the latest. A shorter time costs more reads of
    /// a small table.
    #[serde(with = "crate::duration::route_refresh")]
    pub route_refresh: Duration,
    /// Whether `schedule` refuses a connection without an open transaction. Default true. Set it to false
    /// only for events that belong to no other write: their insert is committed alone.
    pub require_transaction: bool,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self {
            order: OrderLevel::Causal,
            max_payload_bytes: 1024 * 1024,
            max_header_bytes: 8 * 1024,
            route_refresh: Duration::from_secs(10),
            require_transaction: true,
        }
    }
}

/// What becomes of completed records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RetentionConfig {
    /// What becomes of a completed record. Default [`Completed::Delete`]. `Archive` and `Keep` give a history
    /// and cost table space until [`completed_for`](field@Self::completed_for).
    pub completed: Completed,
    /// The time for which archived and kept records stay. Default 7 days. Set it to the length of the history
    /// that you need.
    #[serde(with = "crate::duration::completed_for")]
    pub completed_for: Duration,
    /// The time for which a dedup key is kept. Default 7 days. Set it longer than the time within which a
    /// producer may repeat an event.
    #[serde(with = "crate::duration::dedup_for")]
    pub dedup_for: Duration,
    /// The time between two purges of old rows by the owner of partition 0; in claimed mode, by each instance.
    /// Default 10 min. Shorten it if many rows expire at once.
    #[serde(with = "crate::duration::purge_interval")]
    pub purge_interval: Duration,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            completed: Completed::Delete,
            completed_for: Duration::from_secs(7 * 24 * 3600),
            dedup_for: Duration::from_secs(7 * 24 * 3600),
            purge_interval: Duration::from_secs(600),
        }
    }
}

setters! { Config {
    table_prefix: String,
    mode: Mode,
    schedule: ScheduleConfig,
    delivery: DeliveryConfig,
    cluster: ClusterConfig,
    retry: RetryPolicy,
    retention: RetentionConfig,
    database: DatabaseConfig
    ; some schema: String
} }

setters! { ScheduleConfig {
    order: OrderLevel,
    max_payload_bytes: usize,
    max_header_bytes: usize,
    route_refresh: Duration,
    require_transaction: bool
} }

setters! { DeliveryConfig {
    poll_interval: Duration,
    claim_lease: Duration,
    batch_size: usize,
    max_in_flight: usize,
    max_in_flight_bytes: usize,
    concurrency: usize,
    transactional_concurrency: usize,
    handler_timeout: Duration,
    stop_on_first_failure: bool,
    max_crashes: u32
    ; some on_failure: OnFailure
} }

setters! { ClusterConfig {
    heartbeat_interval: Duration,
    stale_instance_timeout: Duration,
    rebalance_interval: Duration,
    graceful_shutdown_timeout: Duration,
    handover_timeout: Duration,
    purge_instances_after: Duration
    ; some instance_name: String
} }

setters! { RetentionConfig {
    completed: Completed,
    completed_for: Duration,
    dedup_for: Duration,
    purge_interval: Duration
} }

setters! { DatabaseConfig {
    call_timeout: Duration,
    async_settle: bool,
    notifications: bool,
    on_connect: Vec<String>
} }

/// All problems of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct ConfigError {
    /// Each problem as one sentence: the value, the limit, the remedy.
    pub problems: Vec<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration has {} problem(s): {}", self.problems.len(), self.problems.join("; "))
    }
}

impl Config {
    /// Checks every value and the relations between values.
    ///
    /// # Errors
    /// [`ConfigError`] with all problems, not only the first.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut problems = Vec::new();
        if let Err(error) = self.table_names() {
            problems.push(error.to_string());
        }
        self.ranges(&mut problems);
        self.delivery.problems(&mut problems);
        self.cluster.problems(&mut problems);
        self.database.problems(&mut problems);
        problems.extend(self.retry.problems("retry"));
        match self.mode {
            Mode::Partitioned => self.relations(&mut problems),
            Mode::Claimed => {
                self.delivery.problems_of_claims(self.database.call_timeout, &mut problems);
                if self.schedule.order == OrderLevel::Strict {
                    problems.push(
                        "schedule.order is strict, but claimed mode has no order: leave it out".to_owned(),
                    );
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
    }

    pub(crate) fn table_names(&self) -> Result<Tables, crate::store::BadName> {
        Tables::new(self.schema.as_deref(), &self.table_prefix)
    }

    pub(crate) fn store_settings(&self) -> StoreSettings {
        StoreSettings {
            tables: self.table_names().unwrap_or_default(),
            completed: self.retention.completed,
            call_timeout: self.database.call_timeout,
            async_settle: self.database.async_settle,
            on_connect: self.database.on_connect.as_slice().into(),
        }
    }

    fn ranges(&self, problems: &mut Vec<String>) {
        let paces = [
            ("schedule.route_refresh", self.schedule.route_refresh),
            ("delivery.poll_interval", self.delivery.poll_interval),
            ("delivery.claim_lease", self.delivery.claim_lease),
            ("delivery.handler_timeout", self.delivery.handler_timeout),
            ("cluster.heartbeat_interval", self.cluster.heartbeat_interval),
            ("cluster.stale_instance_timeout", self.cluster.stale_instance_timeout),
            ("cluster.rebalance_interval", self.cluster.rebalance_interval),
            ("retention.purge_interval", self.retention.purge_interval),
            ("database.call_timeout", self.database.call_timeout),
        ];
        for (name, _) in paces.iter().filter(|(_, duration)| duration.is_zero()) {
            problems.push(format!("{name} is 0s, but must be longer; leave it out for the default"));
        }
        let others = [
            ("cluster.graceful_shutdown_timeout", self.cluster.graceful_shutdown_timeout),
            ("cluster.handover_timeout", self.cluster.handover_timeout),
            ("cluster.purge_instances_after", self.cluster.purge_instances_after),
            ("retention.completed_for", self.retention.completed_for),
            ("retention.dedup_for", self.retention.dedup_for),
        ];
        for (name, duration) in paces.iter().chain(&others).filter(|(_, duration)| *duration > LONGEST) {
            problems.push(format!("{name} is {duration:?}, but must be at most ten years"));
        }
        if self.schedule.max_payload_bytes < KEY_LIMIT_BYTES {
            let limit = self.schedule.max_payload_bytes;
            problems.push(format!(
                "schedule.max_payload_bytes is {limit}, but must be at least {KEY_LIMIT_BYTES}"
            ));
        }
    }

    fn relations(&self, problems: &mut Vec<String>) {
        let cluster = &self.cluster;
        let stale = cluster.stale_instance_timeout;
        let trusted = stale.saturating_sub(lease::margin(stale));
        if trusted < cluster.heartbeat_interval.saturating_mul(2) {
            problems.push(format!(
                "cluster.stale_instance_timeout is {stale:?}: less its margin it is shorter than two heartbeats \
                 of {:?}, so one lost beat would stop delivery; make it three heartbeats",
                cluster.heartbeat_interval
            ));
        }
        let least = self.delivery.handler_timeout.saturating_add(self.database.call_timeout);
        if cluster.handover_timeout < least {
            problems.push(format!(
                "cluster.handover_timeout is {:?}, but must be at least delivery.handler_timeout + \
                 database.call_timeout ({least:?}): a slow handler would get its instance evicted",
                cluster.handover_timeout
            ));
        }
        if stale < cluster.rebalance_interval.saturating_mul(2) {
            problems.push(format!(
                "cluster.stale_instance_timeout is {stale:?}, but must be at least twice \
                 cluster.rebalance_interval ({:?}): a silent instance must be checked more than once",
                cluster.rebalance_interval
            ));
        }
        if self.database.call_timeout >= stale {
            problems.push(format!(
                "database.call_timeout is {:?}, but must be shorter than cluster.stale_instance_timeout ({stale:?})",
                self.database.call_timeout
            ));
        }
    }
}
