//! Handlers: the code of the user, in each form that Keylane can call.
//!
//! | form | trait | given | returns |
//! | --- | --- | --- | --- |
//! | typed | [`Handler`] | one event | `Result<(), E>` |
//! | generic | [`GenericHandler`] | one record, payload as bytes | `Result<(), E>` |
//! | batch | [`BatchHandler`] | a run of one key, or a mix across keys | one result per record |
//! | transactional | [`TransactionalHandler`] | one event and the transaction of its completion | `Result<(), E>` |
//! | transactional batch | [`TransactionalBatchHandler`] | several events and the transaction of their completions | `Result<(), E>` |
//! | fallback | [`FallbackHandler`], [`GenericFallbackHandler`] | the event and its [`Failure`] | `Result<(), E>` |
//!
//! `#[outbox_handler]` and `#[outbox_fallback_handler]` generate the same [`Registration`] from an `async
//! fn`, and use only public items.

mod batch;
mod calls;
mod context;
pub mod convert;
mod dead_letters;
mod error;
mod forms;
mod guard;
mod record_types;
mod registration;
mod registry;

pub use batch::{DecodedBatch, Undecodable};
pub use calls::{BatchCall, BoxFuture, Call, FallbackCall, TransactionalBatchCall, TransactionalCall};
pub use context::{Context, State, States};
pub use dead_letters::DeadLetterTable;
pub use error::{ClassifiedError, Failure, FailureKind, HandlerError};
pub use forms::{
    BatchHandler, BatchResults, FallbackHandler, GenericBatchHandler, GenericFallbackHandler, GenericHandler,
    Handler, TransactionalBatchHandler, TransactionalHandler,
};
pub(crate) use guard::{Guarded, guarded};
pub(crate) use record_types::{ANY_TEXT, is_of_pattern};
pub use record_types::{RecordTypes, Route};
pub use registration::{Declare, Registration};
pub use registry::RegistryError;
pub(crate) use registry::{Defaults, EVERY_TYPE, Entry, Form, Registry, is_valid_name};

pub use serde_json::Value as JsonValue;

pub use crate::{
    codec::DecodeError,
    record::{BoxedError, Headers},
    rules::{rate::Rate, retry::OnUndecodable},
};
