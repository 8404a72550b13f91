//! x
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(missing_docs)]

pub mod handler;
pub mod memory;
pub mod rules;

mod clock;
mod codec;
mod database;
mod instance;
mod partition;
mod record;
mod store;

pub use handler::*;
pub use database::*;
pub use instance::*;
pub use partition::*;
pub use record::*;
pub use store::*;
#[cfg(feature = "macros")]
pub use keylane_macros::{OutboxEvent, outbox_fallback_handler, outbox_handler};
