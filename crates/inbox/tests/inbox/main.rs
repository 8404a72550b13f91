//! The inbox on the four databases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod batches;
mod claims;
mod crashes;
mod duplicates;
mod failures;
mod poolers;
mod retention;
mod stage;
#[path = "../../../sql/tests/sql/target.rs"]
mod target;

use keylane_inbox::InboxDatabase as UnderTest;
