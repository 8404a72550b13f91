//! The forms of a message, and the differences between the protocols that carry it.

use serde::{Deserialize, Serialize};

/// The form of a message. `docs/messages.md` shows each form with its headers and its body.
///
/// In settings, the forms have these names: `cloud-events`, `cloud-events-json`, `base-event`, `debezium`,
/// `plain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Form {
    /// A CloudEvent 1.0 in binary mode: the body is the payload, and the attributes are headers.
    #[default]
    CloudEvents,
    /// A CloudEvent 1.0 in structured mode: the body is a JSON object with the attributes and the payload.
    CloudEventsJson,
    /// The body is a JSON object with `messageId`, `eventId`, `traceId`, `bizKey` and `payload`.
    BaseEvent,
    /// The body is the payload, with the headers of Debezium's outbox event router.
    Debezium,
    /// The body is the payload, and the form adds no headers.
    Plain,
}

impl Form {
    /// Every form.
    pub const ALL: [Self; 5] =
        [Self::CloudEvents, Self::CloudEventsJson, Self::BaseEvent, Self::Debezium, Self::Plain];

    /// The name in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CloudEvents => "cloud-events",
            Self::CloudEventsJson => "cloud-events-json",
            Self::BaseEvent => "base-event",
            Self::Debezium => "debezium",
            Self::Plain => "plain",
        }
    }
}

/// The protocol that carries a message. The binary form of a CloudEvent names its attributes differently in
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Binding {
    /// The prefix `ce_` before each attribute. Values are UTF-8.
    Kafka,
    /// The prefix `ce-` before each attribute. Values are percent-encoded.
    Http,
}
