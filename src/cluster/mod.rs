//! The cluster wing: heartbeat, view, assignment, claim, drain, release.
//!
//! ```text
//!   own thread:   beat ──▶ outbox_instance ──▶ answer renews the lease (from the time it was sent)
//!                                                   └─ and brings a view: is there anything to do?
//!   if so:        view ──▶ who is silent? evict ──▶ assign ──▶ my moves
//!                                                   ├─ drain ──▶ permits gone ──▶ release
//!                                                   └─ claim what is free or left by the dead
//! ```
//!
//! There is no leader. Every instance computes the same assignment from the same view and carries out its own
//! part. If views differ, a compare-and-set fails; a partition never has two owners. Liveness is a beat
//! counter, which the observer watches with its own clock. An instance stops trusting its lease before
//! another instance may declare it dead. The transaction that declares it dead also closes its fence rows: if
//! an instance sleeps long between its last check of the lease and its write, the write changes nothing.
//!
//! Words: to *evict* is to declare a live instance dead; a *draining* partition or instance finishes its work
//! and starts nothing; an *overdue* instance beats but does not release partitions that others wait for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

mod heartbeat;
mod rebalancer;

pub(crate) use heartbeat::{Heartbeat, Pulse};
pub(crate) use rebalancer::{Departure, Rebalancer};

/// The settings of the cluster: heartbeats, takeover and shutdown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ClusterConfig {
    /// The time between two heartbeats. Default 5 s. Shorten it together with
    /// [`stale_instance_timeout`](field@Self::stale_instance_timeout), nine tenths of which must be at least
    /// two heartbeats. Each beat is one statement per instance.
    #[serde(with = "crate::duration::heartbeat_interval")]
    pub heartbeat_interval: Duration,
    /// The time after which an instance whose beat does not move is declared dead. The instance stops itself
    /// a tenth earlier. Default 30 s. A shorter time means a faster takeover after a crash, and evictions
    /// after shorter pauses of a process. Nine tenths of the time must be at least two heartbeats, and the
    /// whole time at least two rebalance intervals.
    #[serde(with = "crate::duration::stale_instance_timeout")]
    pub stale_instance_timeout: Duration,
    /// The longest time between two checks of cluster membership. Default 10 s. Normally each heartbeat
    /// includes one, and polls tell of changes, so it rarely needs a change. At most half of
    /// [`stale_instance_timeout`](field@Self::stale_instance_timeout).
    #[serde(with = "crate::duration::rebalance_interval")]
    pub rebalance_interval: Duration,
    /// The time in which a stopping instance may finish its calls before it cancels the rest. Default 15 s.
    /// Set it to the time of your slowest handler, and give the supervisor of the process more.
    #[serde(with = "crate::duration::graceful_shutdown_timeout")]
    pub graceful_shutdown_timeout: Duration,
    /// The time after which an instance is evicted that beats, but does not release partitions that others
    /// wait for. Default 1 min. Raise it for slow handlers: the timeout of each handler plus
    /// [`DatabaseConfig::call_timeout`](crate::DatabaseConfig::call_timeout) (twice, if the handler is
    /// transactional) must fit.
    #[serde(with = "crate::duration::handover_timeout")]
    pub handover_timeout: Duration,
    /// The time after which rows of stopped and dead instances are deleted. Default 1 day. Lengthen it for a
    /// longer record of past instances; at least ten stale timeouts.
    #[serde(with = "crate::duration::purge_instances_after")]
    pub purge_instances_after: Duration,
    /// The name of this process, for people, 1 to 255 bytes. Default: the host name (on Linux) and the process
    /// id. Set it to the name of the pod or unit.
    pub instance_name: Option<String>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(5),
            stale_instance_timeout: Duration::from_secs(30),
            rebalance_interval: Duration::from_secs(10),
            graceful_shutdown_timeout: Duration::from_secs(15),
            handover_timeout: Duration::from_secs(60),
            purge_instances_after: Duration::from_secs(24 * 3600),
            instance_name: None,
        }
    }
}

impl ClusterConfig {
    pub(crate) fn problems(&self, problems: &mut Vec<String>) {
        if let Some(name) = self.instance_name.as_ref().filter(|name| !(1..=255).contains(&name.len())) {
            problems.push(format!("cluster.instance_name has {} bytes, but must have 1 to 255", name.len()));
        }
        if self.purge_instances_after < self.stale_instance_timeout.saturating_mul(10) {
            problems.push(format!(
                "cluster.purge_instances_after is {:?}, but must be at least ten times \
                 cluster.stale_instance_timeout ({:?})",
                self.purge_instances_after, self.stale_instance_timeout
            ));
        }
    }

    /// The time between two views above which the observer counts as interrupted. The limit is well above the
    /// usual distance of two views, and so low that an outage of this length brings no beat near its limit.
    pub(crate) fn gap_limit(&self) -> Duration {
        (self.stale_instance_timeout / 2).max(self.rebalance_interval * 3 / 2)
    }
}
