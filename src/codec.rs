//! How events become bytes: JSON.

use serde::{Serialize, de::DeserializeOwned};

/// The media type of payloads that Keylane encodes.
pub(crate) const JSON: &str = "application/json";

/// Why a payload could not be decoded. The text names places, never the payload's content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The payload is not in a form this build can read.
    #[error("content type {content_type:?} cannot be decoded into an event; take it with a generic handler")]
    ContentType {
        /// The media type stored with the record.
        content_type: String,
    },
    /// The payload does not fit the event.
    #[error("payload does not fit the event: {category} at line {line}, column {column}")]
    Json {
        /// Syntax, data or end of input.
        category: &'static str,
        /// 1 and up.
        line: usize,
        /// 1 and up.
        column: usize,
    },
}

pub(crate) fn encode<E: Serialize>(event: &E) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(event)
}

pub(crate) fn decode<E: DeserializeOwned>(content_type: &str, payload: &[u8]) -> Result<E, DecodeError> {
    if content_type != JSON {
        return Err(DecodeError::ContentType { content_type: content_type.to_owned() });
    }
    serde_json::from_slice(payload).map_err(|error| DecodeError::Json {
        category: match error.classify() {
            serde_json::error::Category::Data => "a value of another type or a missing field",
            serde_json::error::Category::Eof => "unexpected end",
            _ => "invalid JSON",
        },
        line: error.line(),
        column: error.column(),
    })
}
