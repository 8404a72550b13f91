//! The codecs of payloads: JSON, or the choice of the event.

use std::error::Error;

type Refusal = Box<dyn Error + Send + Sync>;
type Read<T> = fn(&[u8]) -> Result<T, Refusal>;

/// The codec of an event's payload: JSON, unless the event chooses another.
///
/// Each record stores its media type, and the media type decides how the payload is read. An event can
/// therefore change its codec: stored JSON is still read.
///
/// ```
/// use keylane::{OutboxEvent, encoding::Codec};
///
/// #[derive(serde::Serialize, serde::Deserialize, OutboxEvent)]
/// #[outbox(record_type = "reading.taken", key = "meter-{meter}", codec = READING)]
/// struct Reading {
///     meter: u32,
///     value: u32,
/// }
///
/// const READING: Codec<Reading> = Codec::new("application/vnd.meter.reading", write, read);
///
/// fn write(reading: &Reading) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
///     Ok([reading.meter.to_be_bytes(), reading.value.to_be_bytes()].concat())
/// }
///
/// fn read(payload: &[u8]) -> Result<Reading, Box<dyn std::error::Error + Send + Sync>> {
///     let (meter, value) = payload.split_at_checked(4).ok_or("shorter than 4 bytes")?;
///     let number = |bytes: &[u8]| Ok::<_, std::array::TryFromSliceError>(u32::from_be_bytes(bytes.try_into()?));
///     Ok(Reading { meter: number(meter)?, value: number(value)? })
/// }
/// ```
pub struct Codec<E>(Option<Other<E>>);

/// A codec other than JSON.
pub(crate) struct Other<E> {
    pub(crate) content_type: &'static str,
    pub(crate) encode: fn(&E) -> Result<Vec<u8>, Refusal>,
    pub(crate) decode: Read<E>,
    /// Decodes a payload for an upcast. `None` if the encoding does not describe its content.
    pub(crate) value: Option<Read<serde_json::Value>>,
}

impl<E> Codec<E> {
    /// JSON, by serde.
    pub const fn json() -> Self {
        Self(None)
    }

    /// A custom codec: a media type without parameters, and a function for each direction. The errors of the
    /// functions are logged and stored: they must not contain the payload. Payloads of older versions of the
    /// event cannot be read.
    pub const fn new(
        content_type: &'static str,
        encode: fn(&E) -> Result<Vec<u8>, Refusal>,
        decode: fn(&[u8]) -> Result<E, Refusal>,
    ) -> Self {
        Self(Some(Other { content_type, encode, decode, value: None }))
    }

    /// The codec, or `None` for JSON.
    pub(crate) fn other(self) -> Option<Other<E>> {
        self.0
    }
}

#[cfg(feature = "cbor")]
mod cbor {
    use ciborium::de::Error as CborError;
    use serde::{Serialize, de::DeserializeOwned};

    use super::{Codec, Other, Refusal};

    impl<E: Serialize + DeserializeOwned> Codec<E> {
        /// CBOR, by serde: `application/cbor`. Structs are maps with the names of their fields. An upcast
        /// gets the payload converted to JSON, so a payload with byte strings cannot be upcast.
        #[cfg_attr(docsrs, doc(cfg(feature = "cbor")))]
        pub const fn cbor() -> Self {
            let (encode, decode, value) = (encode::<E>, decode::<E>, decode::<serde_json::Value>);
            Self(Some(Other { content_type: "application/cbor", encode, decode, value: Some(value) }))
        }
    }

    fn encode<E: Serialize>(event: &E) -> Result<Vec<u8>, Refusal> {
        let mut bytes = Vec::new();
        ciborium::into_writer(event, &mut bytes)?;
        Ok(bytes)
    }

    fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Refusal> {
        let mut rest = payload;
        // The error texts of the library can quote the payload.
        let problem = match ciborium::from_reader(&mut rest) {
            Ok(event) if rest.is_empty() => return Ok(event),
            Ok(_) => "bytes behind its end".to_owned(),
            Err(CborError::Io(_)) => "an unexpected end".to_owned(),
            Err(CborError::Syntax(at)) => format!("a syntax error at byte {at}"),
            Err(CborError::Semantic(..)) => "a value of another type or a missing field".to_owned(),
            Err(CborError::RecursionLimitExceeded) => "values nested too deeply".to_owned(),
        };
        Err(problem.into())
    }
}

#[cfg(feature = "message-pack")]
mod message_pack {
    use rmp_serde::decode::Error as MessagePackError;
    use serde::{Serialize, de::DeserializeOwned};

    use super::{Codec, Other, Refusal};

    impl<E: Serialize + DeserializeOwned> Codec<E> {
        /// MessagePack, by serde: `application/vnd.msgpack`. Structs are maps with the names of their fields.
        /// An upcast gets the payload converted to JSON, so a payload with binaries cannot be upcast.
        #[cfg_attr(docsrs, doc(cfg(feature = "message-pack")))]
        pub const fn message_pack() -> Self {
            let (encode, decode, value) = (encode::<E>, decode::<E>, decode::<serde_json::Value>);
            Self(Some(Other { content_type: "application/vnd.msgpack", encode, decode, value: Some(value) }))
        }
    }

    fn encode<E: Serialize>(event: &E) -> Result<Vec<u8>, Refusal> {
        Ok(rmp_serde::to_vec_named(event)?)
    }

    fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Refusal> {
        let mut rest = payload;
        // The error texts of the library can quote the payload.
        let problem = match rmp_serde::from_read(&mut rest) {
            Ok(event) if rest.is_empty() => return Ok(event),
            Ok(_) => "bytes behind its end",
            Err(MessagePackError::InvalidMarkerRead(_) | MessagePackError::InvalidDataRead(_)) => {
                "an unexpected end"
            }
            Err(MessagePackError::DepthLimitExceeded) => "values nested too deeply",
            Err(_) => "a value of another type or a missing field",
        };
        Err(problem.into())
    }
}

#[cfg(feature = "protobuf")]
mod protobuf {
    use prost::Message;

    use super::{Codec, Other, Refusal};

    impl<E: Message + Default> Codec<E> {
        /// Protobuf, by prost 0.14: `application/protobuf`. Protobuf has its own rules for changes, so an
        /// event needs no version, and a payload of an older version cannot be upcast.
        #[cfg_attr(docsrs, doc(cfg(feature = "protobuf")))]
        pub const fn protobuf() -> Self {
            let (encode, decode) = (encode::<E>, decode::<E>);
            Self(Some(Other { content_type: "application/protobuf", encode, decode, value: None }))
        }
    }

    // A vector takes a message of any size, so there is no error.
    fn encode<E: Message>(event: &E) -> Result<Vec<u8>, Refusal> {
        Ok(event.encode_to_vec())
    }

    fn decode<E: Message + Default>(payload: &[u8]) -> Result<E, Refusal> {
        Ok(E::decode(payload)?)
    }
}
