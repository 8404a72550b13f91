//! The `keylane` command as a user runs it, on real databases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod bench;
mod deploy;
mod goals;
mod instances;
mod keylane;
mod measurements;
mod relay;
mod repair;
mod schema;
#[cfg(feature = "tls")]
mod tls;
