//! Durations in settings: one module per key, so that an error names the path of the key.

use std::{fmt, time::Duration};

use serde::{Deserializer, Serializer, de};

macro_rules! keys {
    ($($name:ident $path:literal),* $(,)?) => {$(
        pub(crate) mod $name {
            use std::time::Duration;

            use serde::{Deserializer, Serializer};

            pub(crate) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
                super::write(*duration, to)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
                super::read($path, from)
            }
        }
    )*};
}

keys! {
    route_refresh "schedule.route_refresh",
    poll_interval "delivery.poll_interval",
    claim_lease "delivery.claim_lease",
    handler_timeout "delivery.handler_timeout",
    heartbeat_interval "cluster.heartbeat_interval",
    stale_instance_timeout "cluster.stale_instance_timeout",
    rebalance_interval "cluster.rebalance_interval",
    graceful_shutdown_timeout "cluster.graceful_shutdown_timeout",
    handover_timeout "cluster.handover_timeout",
    purge_instances_after "cluster.purge_instances_after",
    max_delay "retry.max_delay",
    max_unavailable "retry.max_unavailable",
    unavailable_alarm "retry.unavailable_alarm",
    fixed_delay "retry.backoff.fixed.delay",
    linear_initial "retry.backoff.linear.initial",
    linear_increment "retry.backoff.linear.increment",
    exponential_initial "retry.backoff.exponential.initial",
    completed_for "retention.completed_for",
    dedup_for "retention.dedup_for",
    purge_interval "retention.purge_interval",
    call_timeout "database.call_timeout",
}

fn write<S: Serializer>(duration: Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_duration(duration))
}

fn read<'de, D: Deserializer<'de>>(path: &'static str, from: D) -> Result<Duration, D::Error> {
    from.deserialize_str(Text(path))
}

struct Text(&'static str);

impl de::Visitor<'_> for Text {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a duration for {}, such as \"250ms\", \"5s\" or \"1m 30s\"", self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        humantime::parse_duration(text).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}
