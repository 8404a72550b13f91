//! One form for all answers: the envelope of results, and the layer that gives errors their form.

mod layer;
mod rules;

pub use layer::{EnvelopeLayer, EnvelopeService};
use serde::{Deserialize, Serialize};

use crate::{refusal::code, trace::Trace};

/// An answer of the service: `{"code", "message", "traceId", "data"}`.
///
/// ```
/// let answer = keylane_web::ResultEnvelope::ok(vec![1, 2]);
/// let text = serde_json::to_string(&answer).unwrap();
/// assert_eq!(text, r#"{"code":"00000","message":"ok","traceId":null,"data":[1,2]}"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResultEnvelope<T> {
    /// `00000` for a result, else the code of the error.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// The trace of the request, if there is one.
    pub trace_id: Option<String>,
    /// The result.
    pub data: Option<T>,
}

impl<T> ResultEnvelope<T> {
    /// A result, with the current trace.
    pub fn ok(data: T) -> Self {
        let trace_id = Trace::current().map(|trace| trace.id().to_owned());
        Self { code: code::OK.to_owned(), message: "ok".to_owned(), trace_id, data: Some(data) }
    }
}
