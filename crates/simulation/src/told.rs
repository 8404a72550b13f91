//! The event of the producers, in two versions of the service, and the failures of its serializer and its readers.

use std::{
    any::Any,
    cell::Cell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use fastrand::Rng;
use keylane::OutboxEvent;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};

use crate::panics::panicking;

/// An event of the first version.
#[derive(Clone, Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "account.moved", key = "{key}")]
pub(crate) struct Moved {
    #[serde(deserialize_with = "read_key")]
    pub(crate) key: String,
    #[serde(skip_deserializing)]
    pub(crate) writing: Writing,
}

/// The same event in the second version, which builds of the first one cannot read.
#[derive(Clone, Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "account.moved", key = "{key}", version = 2, upcast = keep)]
pub(crate) struct MovedAgain {
    #[serde(deserialize_with = "read_key")]
    pub(crate) key: String,
    #[serde(skip_deserializing)]
    pub(crate) writing: Writing,
}

/// How the serializer behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Writing {
    #[default]
    Succeeds,
    Fails,
    Panics,
}

impl Writing {
    /// Draws the behaviour: one of many fails or panics.
    pub(crate) fn draw(dice: &mut Rng) -> Self {
        match dice.u8(..40) {
            0 => Self::Fails,
            1 => Self::Panics,
            _ => Self::Succeeds,
        }
    }
}

impl Serialize for Writing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Succeeds => serializer.serialize_unit(),
            Self::Fails => Err(S::Error::custom("as the simulation wants")),
            Self::Panics => panicking("the serializer"),
        }
    }
}

/// What panics while a payload is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misreading {
    Decoder,
    Upcast,
}

thread_local! {
    static MISREADING: Cell<Option<Misreading>> = const { Cell::new(None) };
}

impl Misreading {
    /// Draws what panics: one of many payloads. Few have an upcast.
    pub(crate) fn draw(dice: &mut Rng) -> Option<Self> {
        match dice.u8(..16) {
            0 => Some(Self::Decoder),
            1..4 => Some(Self::Upcast),
            _ => None,
        }
    }

    /// The name in the history.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Decoder => "decoder panicked",
            Self::Upcast => "upcast panicked",
        }
    }

    /// Panics if it is drawn for the payload that is being read.
    fn strike(self) {
        if MISREADING.get() == Some(self) {
            panicking(self.name());
        }
    }
}

/// Reads a payload, which may be misread.
pub(crate) fn reading<T>(
    misreading: Option<Misreading>,
    read: impl FnOnce() -> T,
) -> Result<T, Box<dyn Any + Send>> {
    MISREADING.set(misreading);
    let read = catch_unwind(AssertUnwindSafe(read));
    MISREADING.set(None);
    read
}

fn read_key<'de, D: Deserializer<'de>>(of: D) -> Result<String, D::Error> {
    Misreading::Decoder.strike();
    String::deserialize(of)
}

/// Leaves the payload unchanged.
fn keep(_: u32, payload: serde_json::Value) -> Result<serde_json::Value, fmt::Error> {
    Misreading::Upcast.strike();
    Ok(payload)
}
