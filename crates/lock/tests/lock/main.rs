//! Locks on the four databases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod answers;
mod crashes;
mod entries;
mod exclusion;
mod failures;
mod history;
mod leases;
mod linear;
mod poolers;
mod queueing;
mod relay;
mod signals;
mod target;
mod transactions;
