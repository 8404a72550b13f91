//! Idempotent requests: one execution per key, and its answer for each repeat.

mod answer;
mod execution;
mod layer;
#[cfg(feature = "redis")]
mod redis;
pub(crate) mod rules;

use std::{sync::Arc, time::Duration};

pub use answer::Answer;
use futures::future::BoxFuture;
use http::HeaderName;
pub use layer::{IdempotencyBuilder, IdempotencyLayer, IdempotencyService};

use crate::error::StoreError;

/// The header with the key of a request.
pub const IDEMPOTENCY_KEY_HEADER: HeaderName = HeaderName::from_static("x-idempotency-key");
/// The header that says, with `true`, that an answer is that of an earlier request.
pub const REPLAYED_HEADER: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The claim of a request on its key. Each attempt to execute has a token of its own. The claim is in the extensions
/// of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The name of the scope, with the subject of the request.
    pub scope: Arc<str>,
    /// The key as the client has sent it.
    pub key: Arc<str>,
    /// The token of this attempt. The store lets no other attempt finish or free the key.
    pub token: Arc<str>,
    /// The SHA-256 of method, address and body. Another request under the same key has another fingerprint.
    pub fingerprint: Arc<str>,
    /// The trace of the request.
    pub trace_id: Option<Arc<str>>,
    /// How long the key stays claimed if it is not finished.
    pub lease: Duration,
    /// How long the answer is kept.
    pub keep: Duration,
}

/// The state of a key when a request begins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Begun {
    /// The key was free. It is claimed now, and the request is to be executed.
    Execute,
    /// A request with this key is under way.
    InProgress,
    /// A request with this key was executed, and this is its answer.
    Done(Answer),
    /// The key belongs to a request with another fingerprint.
    OtherRequest,
}

/// A store of keys and answers.
///
/// A store must be able to tell claims apart by their token. What the store has acknowledged must survive the
/// failures that the service wants to survive.
pub trait IdempotencyStore: Send + Sync + 'static {
    /// Claims the key, unless it is claimed or done. Of several calls at once, only one returns [`Begun::Execute`].
    ///
    /// # Errors
    /// [`StoreError`]: whether the key is claimed is not known.
    ///
    /// # Cancel safety
    /// If it is dropped, the key may be claimed until its lease ends.
    fn begin<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Begun, StoreError>>;

    /// Keeps the answer if the key belongs to this claim. A store that may lose keys also keeps it if the key is free.
    /// False if the answer is not kept; the record of another claim stays. A repetition of the call changes nothing,
    /// and what the handler has stored itself stays.
    ///
    /// # Errors
    /// [`StoreError`]: whether the answer is kept is not known.
    fn finish<'a>(&'a self, claim: &'a Claim, answer: &'a Answer) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Frees the key if it is this claim's and has no answer. False if it is another's, whose record stays.
    ///
    /// # Errors
    /// [`StoreError`]: whether the key is free is not known.
    fn free<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<bool, StoreError>>;
}
