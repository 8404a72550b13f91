//! The settings of all processes: those of a service, but with shorter times, for there is only half
//! a minute.

use std::time::Duration;

use keylane::Config;

/// The settings of a process that shares the tables with this prefix.
pub(crate) fn of(prefix: &str, replica: usize) -> Config {
    let mut config = Config::default().table_prefix(prefix);
    config.delivery.poll_interval = Duration::from_millis(100);
    config.delivery.handler_timeout = Duration::from_secs(3);
    config.database.call_timeout = Duration::from_millis(1500);
    config.cluster.heartbeat_interval = Duration::from_millis(300);
    config.cluster.stale_instance_timeout = Duration::from_secs(2);
    config.cluster.rebalance_interval = Duration::from_millis(500);
    config.cluster.graceful_shutdown_timeout = Duration::from_secs(5);
    // Long enough for a call, its fallback and the write of the outcome: a partition that is asked for in between
    // is handed over without a call repeated.
    config.cluster.handover_timeout = Duration::from_secs(8);
    config.cluster.instance_name = Some(name_of(replica));
    config
}

/// The name under which a replica is found in the table of instances.
pub(crate) fn name_of(replica: usize) -> String {
    format!("replica-{replica}")
}

/// How long it may take until the partitions of a replica that was killed are owned by others.
pub(crate) fn takeover_limit() -> Duration {
    let cluster = of("any_", 0).cluster;
    cluster.stale_instance_timeout + 3 * cluster.rebalance_interval + Duration::from_secs(2)
}
