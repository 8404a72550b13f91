//! Short times, so that a takeover takes seconds.

use std::time::Duration;

use keylane::{Config, Mode};

/// Time without a beat until an instance is declared dead.
pub const STALE: Duration = Duration::from_secs(2);
/// Time between two views of the cluster.
pub const TICK: Duration = Duration::from_millis(400);

/// The same for tests in which nobody dies: a busy machine can keep a process from its database for longer than `STALE`.
const LONG_STALE: Duration = Duration::from_secs(60);

/// How long a claim lasts without a renewal, in claimed mode.
pub const CLAIM_LEASE: Duration = Duration::from_secs(3);

/// The transactional calls of a process at once, in claimed mode.
pub const TRANSACTIONS: usize = 2;

/// The settings of worker processes in claimed mode, on tables with this prefix.
pub fn claimed(prefix: &str) -> Config {
    let mut config = config(prefix);
    config.mode = Mode::Claimed;
    config.delivery.claim_lease = CLAIM_LEASE;
    config.delivery.batch_size = 100;
    // There are so few at once that records wait, and a process that dies holds claims.
    config.delivery.concurrency = 2;
    config.delivery.transactional_concurrency = TRANSACTIONS;
    config
}

/// The settings of worker processes that nobody is to declare dead, on tables with this prefix.
pub fn steady(prefix: &str) -> Config {
    let mut config = config(prefix);
    config.cluster.stale_instance_timeout = LONG_STALE;
    config.database.call_timeout = config.cluster.handover_timeout - config.delivery.handler_timeout;
    config
}

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
