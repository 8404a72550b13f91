//! Payloads of every codec are an event or an error, and the error contains nothing of the payload.
//!
//! The first byte chooses the event and the media type, the rest is the payload.

use std::{borrow::Cow, collections::BTreeMap, fmt::Debug};

use keylane::{
    OutboxEvent,
    encoding::Codec,
    inner::{decode, encode},
};
use serde::{Deserialize, Serialize};

/// A text that no error may contain, if the payload contains it.
const SECRET: &[u8] = b"hunter2";
const MEDIA: [&str; 6] = [
    "application/json",
    "application/json; version=2",
    "application/json; version=3",
    "text/plain; version=",
    "application/cbor",
    "",
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Content {
    id: u64,
    name: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    counts: BTreeMap<String, i32>,
    #[serde(default)]
    choice: Choice,
    #[serde(default)]
    next: Option<Box<Content>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Choice {
    #[default]
    Nothing,
    One(String),
    Two(i8, u128),
    Many {
        of: Vec<Choice>,
    },
}

macro_rules! events {
    ($($name:ident $codec:expr),*) => {$(
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        #[serde(transparent)]
        struct $name(Content);

        impl OutboxEvent for $name {
            const RECORD_TYPE: &'static str = "content";
            const VERSION: u32 = 2;
            const CODEC: Codec<Self> = $codec;

            fn key(&self) -> Cow<'_, str> {
                Cow::Borrowed(&self.0.name)
            }

            fn upcast(_: u32, payload: serde_json::Value) -> Result<serde_json::Value, keylane::inner::BoxedError> {
                Ok(payload)
            }
        }
    )*};
}

events! { Json Codec::json(), Cbor Codec::cbor(), MessagePack Codec::message_pack() }

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
struct Protobuf {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, repeated, tag = "3")]
    tags: Vec<String>,
    #[prost(btree_map = "string, sint32", tag = "4")]
    counts: BTreeMap<String, i32>,
    #[prost(message, optional, boxed, tag = "5")]
    next: Option<Box<Protobuf>>,
}

impl OutboxEvent for Protobuf {
    const RECORD_TYPE: &'static str = "content";
    const VERSION: u32 = 2;
    const CODEC: Codec<Self> = Codec::protobuf();

    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }
}

pub(crate) fn run(data: &[u8]) {
    let Some((choice, payload)) = data.split_first() else { return };
    let media = usize::from(*choice) / 4;
    match choice % 4 {
        0 => read::<Json>("application/json; version=2", media, payload),
        1 => read::<Cbor>("application/cbor; version=2", media, payload),
        2 => read::<MessagePack>("application/vnd.msgpack; version=2", media, payload),
        _ => read::<Protobuf>("application/protobuf; version=2", media, payload),
    }
}

fn read<E: OutboxEvent + Debug + PartialEq>(own: &str, media: usize, payload: &[u8]) {
    let media = media.checked_sub(1).map_or(own, |at| MEDIA[at % MEDIA.len()]);
    match decode::<E>(media, payload) {
        Ok(event) => {
            let bytes = encode(&event).unwrap_or_else(|error| panic!("{event:?}: {error:?}"));
            let again = decode::<E>(own, &bytes).unwrap_or_else(|error| panic!("{event:?}: {error}"));
            assert_eq!(again, event);
        }
        Err(error) => {
            let told = format!("{error} {error:?}");
            let is_told = told.contains("hunter2");
            assert!(!is_told || !payload.windows(SECRET.len()).any(|part| part == SECRET), "{told}");
        }
    }
}
