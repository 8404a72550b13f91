//! The sink on a real broker: order, refusals, a broker that goes away and comes back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod away;
mod broker;
mod clients;
mod dead_letters;
mod headers;
mod leaders;
mod ordering;
mod outages;
mod producer;
mod refusals;
mod relay;
#[cfg(feature = "ssl")]
mod secure;
mod stage;
