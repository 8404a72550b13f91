//! Encoding and decoding of events, with the version of the event in the media type.

use serde::de::DeserializeOwned;

use crate::{
    encoding::Other,
    name::Name,
    record::{BoxedError, OutboxEvent},
};

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";
/// The text between the media type and the number of a later version. A build without versions refuses such a
/// media type.
const VERSION: &str = "; version=";

/// Why an event was not encoded.
#[derive(Debug)]
pub enum EncodeError {
    /// The event cannot be written as JSON.
    Json(serde_json::Error),
    /// The codec has refused the event.
    Other {
        /// The media type of the codec.
        content_type: &'static str,
        /// The error of the codec.
        problem: BoxedError,
    },
}

/// Why a payload was not decoded. The text names positions, never the payload's content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The media type of the payload is none that this build can read.
    #[error("content type {content_type:?} cannot be decoded into an event; take it with a generic handler")]
    ContentType {
        /// The media type stored with the record.
        content_type: String,
    },
    /// The payload has a later version of the event than this build.
    #[error(
        "payload has version {version} of the event, this build has version {known}; a later build can read it"
    )]
    Version {
        /// The version of the payload.
        version: u32,
        /// The version of the event in this build.
        known: u32,
    },
    /// The event's upcast has refused an older payload.
    #[error(
        "payload has version {version} of the event, which its upcast to version {known} refuses: {reason}"
    )]
    Upcast {
        /// The version of the payload.
        version: u32,
        /// The version of the event in this build.
        known: u32,
        /// The error of the upcast.
        reason: String,
    },
    /// The payload does not fit the event, in a codec other than JSON.
    #[error("payload does not fit the event as {content_type}: {problem}")]
    Codec {
        /// The media type of the codec.
        content_type: &'static str,
        /// The error of the codec.
        problem: String,
    },
    /// The payload does not fit the event, in JSON.
    #[error("payload does not fit the event: {category} at line {line}, column {column}")]
    Json {
        /// The kind of the error: syntax, data or end of input.
        category: &'static str,
        /// The line, from 1 on; 0 after an upcast.
        line: usize,
        /// The column, from 1 on; 0 after an upcast.
        column: usize,
    },
}

/// The media type of an event's payload.
pub(crate) fn content_type<E: OutboxEvent>() -> Name {
    let media = E::CODEC.other().map_or(JSON, |codec| codec.content_type);
    match E::VERSION {
        0 | 1 => Name::from_static(media),
        version => format!("{media}{VERSION}{version}").into(),
    }
}

/// Encodes an event with its codec.
pub fn encode<E: OutboxEvent>(event: &E) -> Result<Vec<u8>, EncodeError> {
    match E::CODEC.other() {
        None => serde_json::to_vec(event).map_err(EncodeError::Json),
        Some(Other { content_type, encode, .. }) => {
            encode(event).map_err(|problem| EncodeError::Other { content_type, problem })
        }
    }
}

/// Decodes a payload by its media type. If the payload has an older version, the event's upcast converts it
/// first. JSON is read with every codec, because the event may have been stored before it had its codec.
pub fn decode<E: OutboxEvent>(content_type: &str, payload: &[u8]) -> Result<E, DecodeError> {
    let known = E::VERSION.max(1);
    let refused = || DecodeError::ContentType { content_type: content_type.to_owned() };
    let (media, version) = parts(content_type).ok_or_else(refused)?;
    let codec = match E::CODEC.other().filter(|codec| codec.content_type == media) {
        None if media != JSON => return Err(refused()),
        codec => codec,
    };
    if version > known {
        return Err(DecodeError::Version { version, known });
    }
    let reason = |reason: String| DecodeError::Upcast { version, known, reason };
    let value = match codec {
        None if version == known => return parse(payload),
        None => parse(payload)?,
        Some(Other { content_type, decode, value, .. }) => {
            let unfit =
                |problem: BoxedError| DecodeError::Codec { content_type, problem: problem.to_string() };
            if version == known {
                return decode(payload).map_err(unfit);
            }
            let none = || reason(format!("{content_type} has no form that an upcast can read"));
            value.ok_or_else(none)?(payload).map_err(unfit)?
        }
    };
    let upcast = E::upcast(version, value).map_err(|error| reason(error.to_string()))?;
    serde_json::from_value(upcast).map_err(|error| unfit(&error))
}

/// Splits a media type into the part without the version, and the version.
fn parts(content_type: &str) -> Option<(&str, u32)> {
    // A search for a text takes longer than the whole rest, and most media types have no parameter.
    match content_type.contains(';').then(|| content_type.rsplit_once(VERSION)).flatten() {
        None => Some((content_type, 1)),
        Some((media, version)) => Some((media, version.parse().ok()?)),
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

    use serde::{Deserialize, Serialize};
    use serde_json::{Value, json};

    use super::*;
    use crate::encoding::Codec;

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

    /// Two bytes, with a codec whose payloads an upcast can read.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Pair(u8, u8);

    fn write(pair: &Pair) -> Result<Vec<u8>, BoxedError> {
        if pair.0 == 0 { Err("no zero".into()) } else { Ok(vec![pair.0, pair.1]) }
    }

    fn read(payload: &[u8]) -> Result<Pair, BoxedError> {
        let [first, second] = payload.try_into()?;
        Ok(Pair(first, second))
    }

    impl OutboxEvent for Pair {
        const RECORD_TYPE: &'static str = "pair";
        const VERSION: u32 = 2;
        const CODEC: Codec<Self> = Codec::new("application/x-pair", write, read);

        fn key(&self) -> Cow<'_, str> {
            Cow::Borrowed("a")
        }

        fn upcast(_: u32, payload: Value) -> Result<Value, BoxedError> {
            Ok(json!([payload, payload]))
        }
    }

    #[test]
    fn the_media_type_decides_which_codec_reads() {
        assert_eq!(content_type::<Pair>(), "application/x-pair; version=2");
        assert!(matches!(
            encode(&Pair(0, 0)),
            Err(EncodeError::Other { content_type: "application/x-pair", .. })
        ));
        assert_eq!(encode(&Pair(1, 2)).ok(), Some(vec![1, 2]));
        let decode =
            |media: &str, payload: &[u8]| decode::<Pair>(media, payload).map_err(|error| error.to_string());
        assert_eq!(decode("application/x-pair; version=2", &[1, 2]), Ok(Pair(1, 2)));
        assert_eq!(decode("application/json; version=2", b"[1,2]"), Ok(Pair(1, 2)));
        assert_eq!(decode("application/json", b"3"), Ok(Pair(3, 3)), "an old form of an older codec");
        let refused = |media, payload| decode(media, payload).unwrap_err();
        let misfit = refused("application/x-pair; version=2", &[1]);
        assert!(misfit.starts_with("payload does not fit the event as application/x-pair: "), "{misfit}");
        assert!(refused("application/x-pair", &[1, 2]).contains("has no form that an upcast can read"));
        assert!(refused("application/x-pair; version=3", &[1, 2]).contains("this build has version 2"));
        assert!(refused("application/cbor; version=2", &[1, 2]).contains("cannot be decoded"));
    }

    #[cfg(all(feature = "cbor", feature = "message-pack"))]
    mod by_feature {
        use super::*;

        /// An error of decoding does not quote the payload.
        #[test]
        fn codecs_tell_places_and_categories() {
            #[derive(Debug, PartialEq, Clone, Serialize, Deserialize)]
            struct Note {
                text: String,
            }
            #[derive(Serialize)]
            struct Misfit {
                text: u8,
                secret: &'static str,
            }
            let misfit = Misfit { text: 7, secret: "hunter2" };
            let mut cbor = Vec::new();
            ciborium::into_writer(&misfit, &mut cbor).unwrap();
            let packed = rmp_serde::to_vec_named(&misfit).unwrap();
            for (codec, payload) in [(Codec::<Note>::cbor(), cbor), (Codec::message_pack(), packed)] {
                let Other { encode, decode, value, .. } = codec.other().unwrap();
                let note = Note { text: "é".to_owned() };
                let mut bytes = encode(&note).unwrap();
                assert_eq!(decode(&bytes).unwrap(), note);
                assert_eq!(value.unwrap()(&bytes).unwrap(), json!({ "text": "é" }));
                let refused = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
                assert_eq!(refused(&payload), "a value of another type or a missing field");
                assert_eq!(refused(&bytes[..bytes.len() - 1]), "an unexpected end");
                bytes.push(0);
                assert_eq!(refused(&bytes), "bytes behind its end");
            }
        }
    }
}
