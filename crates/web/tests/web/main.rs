//! The guards, on a real Redis (that of `dev/services`, or a process of a test's own that it kills) and on the four
//! databases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod envelopes;
mod failures;
mod keys;
mod limits;
mod log;
mod once;
mod outages;
mod poolers;
mod processes;
mod stage;
mod tables;
#[path = "../../../sql/tests/sql/target.rs"]
mod target;
mod traces;

use keylane_sql::SqlDatabase as UnderTest;
