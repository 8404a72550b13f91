//! Names that could clash with what the macros write, and no warnings in a strict crate.

#![deny(warnings, missing_docs, unreachable_pub, unused_qualifications)]
#![allow(dead_code)]
#![deny(missing_copy_implementations, missing_debug_implementations)]

use serde::{Deserialize, Serialize};

/// Names of the prelude, taken by the user's crate.
mod taken {
    pub(crate) type Result<T> = std::result::Result<T, keylane::HandlerError>;
    pub(crate) struct Vec;
    pub(crate) struct Box;
    pub(crate) struct Option;
    pub(crate) struct String;
    pub(crate) struct Returned;
}

/// An event of the library's own word for another thing.
#[derive(Debug, Serialize, Deserialize, keylane::OutboxEvent)]
#[outbox(record_type = "record", key = "{key}")]
pub struct Record {
    key: String,
}

/// Handlers called like the local names of the expansion.
pub mod handlers {
    #[allow(unused_imports)]
    use super::taken::{Box, Option, Result, Returned, String, Vec};
    use keylane::{outbox_fallback_handler, outbox_handler};

    /// As in `context.event()`.
    #[outbox_handler(id = "context")]
    pub async fn context(_: crate::names::Record, _: keylane::State<u8>) -> Result<()> {
        Ok(())
    }

    /// As in `batch.events`.
    #[outbox_handler(id = "batch", batch = 2)]
    pub async fn batch(_: std::vec::Vec<crate::names::Record>, _: &[&keylane::Delivery]) -> Result<()> {
        Ok(())
    }

    #[outbox_handler(id = "tx", transactional)]
    pub(crate) async fn tx(_: crate::names::Record, _: &mut keylane::sqlx::PgConnection) -> Result<()> {
        Ok(())
    }

    #[outbox_fallback_handler(default)]
    pub(super) async fn failure(_: &keylane::Record, _: &keylane::Failure) -> Result<()> {
        Ok(())
    }

    #[outbox_handler(id = "async")]
    pub(crate) async fn r#async(_: crate::names::Record) -> Result<()> {
        Ok(())
    }
}

#[test]
fn are_accepted() {
    #[keylane::outbox_handler(id = "inner")]
    async fn inner(_: Record) -> taken::Result<()> {
        Ok(())
    }
    let _ = keylane::handlers![
        handlers::context,
        handlers::batch,
        handlers::tx,
        handlers::failure,
        handlers::r#async,
        inner,
    ];
}
