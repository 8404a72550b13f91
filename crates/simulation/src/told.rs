//! The event of the producers, in two versions of the service, and the failures of its serializer.

use std::fmt;

use fastrand::Rng;
use keylane::OutboxEvent;
use serde::{Deserialize, Serialize, Serializer, ser::Error};

use crate::panics::panicking;

/// An event of the first version.
#[derive(Clone, Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "account.moved", key = "{key}")]
pub(crate) struct Moved {
    pub(crate) key: String,
    #[serde(skip_deserializing)]
    pub(crate) writing: Writing,
}

/// The same event in the second version, which builds of the first one cannot read.
#[derive(Clone, Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "account.moved", key = "{key}", version = 2, upcast = keep)]
pub(crate) struct MovedAgain {
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

/// Leaves the payload unchanged.
fn keep(_: u32, payload: serde_json::Value) -> Result<serde_json::Value, fmt::Error> {
    Ok(payload)
}
