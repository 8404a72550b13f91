//! Locks on the four databases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod answers;
mod crashes;
mod entries;
mod exclusion;
mod failures;
mod history;
mod journal;
mod leases;
mod linear;
mod poolers;
mod process;
mod queueing;
mod register;
mod relay;
mod signals;
mod stage;
#[path = "../../../sql/tests/sql/target.rs"]
mod target;
mod transactions;

use keylane_lock::LockDatabase as UnderTest;
