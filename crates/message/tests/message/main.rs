//! What is written can be read back, in every form and by every protocol.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod foreign;
mod forms;
