//! The sink against an HTTP server in this process: what arrives, what answers mean, what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod answers;
mod refusals;
mod requests;
mod server;
mod stage;
mod tls;
