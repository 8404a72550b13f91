//! How events become bytes and bytes become events: JSON, with the version of the event in the media type.

use serde::{Serialize, de::DeserializeOwned};

use crate::{name::Name, record::OutboxEvent};

/// The media type of the first version of an event.
pub(crate) const JSON: &str = "application/json";
/// The media type of a later version, but for its number. A build that knows no versions refuses it.
const JSON_OF_VERSION: &str = "application/json; version=";

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
    /// The payload is of a later version of the event than this build has.
    #[error(
        "payload has version {version} of the event, this build has version {known}; a later build can read it"
    )]
    Version {
        /// Of the payload.
        version: u32,
        /// Of the event in this build.
        known: u32,
    },
    /// The event's upcast has refused an older payload.
    #[error(
        "payload has version {version} of the event, which its upcast to version {known} refuses: {reason}"
    )]
    Upcast {
        /// Of the payload.
        version: u32,
        /// Of the event in this build.
        known: u32,
        /// What the upcast says.
        reason: String,
    },
    /// The payload does not fit the event.
    #[error("payload does not fit the event: {category} at line {line}, column {column}")]
    Json {
        /// Syntax, data or end of input.
        category: &'static str,
        /// 1 and up; 0 after an upcast.
        line: usize,
        /// 1 and up; 0 after an upcast.
        column: usize,
    },
}

/// The media type of an event's payload.
pub(crate) fn content_type<E: OutboxEvent>() -> Name {
    match E::VERSION {
        0 | 1 => Name::from_static(JSON),
        version => format!("{JSON_OF_VERSION}{version}").into(),
    }
}

pub(crate) fn encode<E: Serialize>(event: &E) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(event)
}

/// Decodes a payload, through the event's upcast if it is of an older version.
pub(crate) fn decode<E: OutboxEvent>(content_type: &str, payload: &[u8]) -> Result<E, DecodeError> {
    let known = E::VERSION.max(1);
    let version = version_of(content_type)
        .ok_or_else(|| DecodeError::ContentType { content_type: content_type.to_owned() })?;
    if version == known {
        return parse(payload);
    }
    if version > known {
        return Err(DecodeError::Version { version, known });
    }
    let upcast = E::upcast(version, parse(payload)?).map_err(|reason| DecodeError::Upcast {
        version,
        known,
        reason: reason.to_string(),
    })?;
    serde_json::from_value(upcast).map_err(|error| unfit(&error))
}

fn version_of(content_type: &str) -> Option<u32> {
    match content_type {
        JSON => Some(1),
        other => other.strip_prefix(JSON_OF_VERSION)?.parse().ok(),
    }
}

fn parse<T: DeserializeOwned>(payload: &[u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(payload).map_err(|error| unfit(&error))
}

fn unfit(error: &serde_json::Error) -> DecodeError {
    DecodeError::Json {
        category: match error.classify() {
            serde_json::error::Category::Data => "a value of another type or a missing field",
            serde_json::error::Category::Eof => "unexpected end",
            _ => "invalid JSON",
        },
        line: error.line(),
        column: error.column(),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::record::BoxedError;

    /// Version 1 had an amount in cents.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Paid {
        euros: u32,
    }

    impl OutboxEvent for Paid {
        const RECORD_TYPE: &'static str = "paid";
        const VERSION: u32 = 3;

        fn key(&self) -> Cow<'_, str> {
            Cow::Borrowed("a")
        }

        fn upcast(from: u32, payload: Value) -> Result<Value, BoxedError> {
            match (from, payload["cents"].as_u64()) {
                (1, Some(cents)) => Ok(json!({ "euros": cents / 100 })),
                (1, None) => Err("there are no cents".into()),
                _ => Err(format!("version {from} was never released").into()),
            }
        }
    }

    #[test]
    fn a_payload_is_read_by_the_version_in_its_media_type() {
        assert_eq!(content_type::<Paid>(), "application/json; version=3");
        let decode = |media: &str, payload: &str| {
            decode::<Paid>(media, payload.as_bytes()).map_err(|error| error.to_string())
        };
        assert_eq!(decode("application/json; version=3", r#"{"euros":7}"#), Ok(Paid { euros: 7 }));
        assert_eq!(decode("application/json", r#"{"cents":700}"#), Ok(Paid { euros: 7 }));
        let refused = |media, payload| decode(media, payload).unwrap_err();
        assert!(refused("application/json", r#"{"euros":7}"#).ends_with("refuses: there are no cents"));
        assert!(refused("application/json; version=2", "{}").ends_with("version 2 was never released"));
        assert!(refused("application/json; version=4", "{}").contains("this build has version 3"));
        for media in ["text/plain", "application/json; version=", "application/json; version=x"] {
            assert!(refused(media, "{}").contains("cannot be decoded"), "{media}");
        }
    }
}
