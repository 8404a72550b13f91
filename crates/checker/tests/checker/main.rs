//! Tests of the checker: valid histories pass, and each mutation of one is caught under its number.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, missing_docs)]

mod by_hand;
mod claims;
mod cluster;
mod command;
mod handlers;
mod history;
mod model;
mod mutations;
mod producers;
mod script;
mod valid;
