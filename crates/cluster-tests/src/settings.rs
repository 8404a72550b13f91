//! Short times, so that a takeover is seen in seconds.

use std::time::Duration;

use keylane::Config;

/// Time without a beat until an instance is declared dead.
pub const STALE: Duration = Duration::from_secs(2);
/// Time between two views of the cluster.
pub const TICK: Duration = Duration::from_millis(400);

/// The settings of worker processes on tables with this prefix.
pub fn config(prefix: &str) -> Config {
    let mut config = Config::default().table_prefix(prefix);
    config.cluster.heartbeat_interval = Duration::from_millis(300);
    config.cluster.stale_instance_timeout = STALE;
    config.cluster.rebalance_interval = TICK;
    config.cluster.graceful_shutdown_timeout = Duration::from_secs(10);
    config.cluster.handover_timeout = Duration::from_secs(10);
    config.delivery.poll_interval = Duration::from_millis(100);
    config.delivery.handler_timeout = Duration::from_secs(5);
    config.database.call_timeout = Duration::from_millis(1500);
    config
}
