//! The consumer on a real broker: order, poison, rebalances, consumers killed in between.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod bounds;
mod broker;
mod crashes;
mod ordering;
mod poison;
mod rebalance;
mod stage;
