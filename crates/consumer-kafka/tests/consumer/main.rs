//! The consumer on a real broker: order, poison, rebalances, consumers killed in between.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../../../sink-kafka/tests/kafka/away.rs"]
mod away;
mod backoff;
mod bounds;
mod broker;
mod claimed;
#[path = "../../../sink-kafka/tests/kafka/clients.rs"]
mod clients;
mod crashes;
mod declared;
mod forgetful;
mod lag;
#[path = "../../../sink-kafka/tests/kafka/leaders.rs"]
mod leaders;
mod letters;
#[path = "../../../web/tests/web/log.rs"]
mod log;
mod ordering;
mod outages;
mod poison;
mod rebalance;
#[path = "../../../sink-kafka/tests/kafka/relay.rs"]
mod relay;
#[cfg(feature = "ssl")]
mod secure;
mod stage;
mod traced;
