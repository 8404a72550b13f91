//! Statements, values and connections on the four databases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod connections;
mod errors;
mod target;
mod values;

use keylane_sql::SqlDatabase as UnderTest;
