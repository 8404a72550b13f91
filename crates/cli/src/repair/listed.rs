//! One failed record or dead letter, in the form in which it is listed.

use std::{collections::BTreeMap, fmt, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use keylane::{
    RecordId,
    admin::{DeadLetter, FailedRecord},
};
use serde::Serialize;

/// The listed fields, in the order of the JSON.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    pub(super) id: RecordId,
    event_id: String,
    partition: u8,
    key: String,
    handler: String,
    record_type: String,
    attempts: u32,
    /// The target. Only dead letters have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_kind: Option<String>,
    scheduled_seconds_ago: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_seconds_ago: Option<f64>,
    content_type: String,
    payload_bytes: usize,
    #[serde(flatten)]
    content: Option<Content>,
}

/// The payload and the headers. They can be personal data, so they are shown only on request.
#[derive(Debug, Serialize)]
struct Content {
    headers: BTreeMap<String, String>,
    #[serde(flatten)]
    payload: Payload,
}

#[derive(Debug, Serialize)]
enum Payload {
    #[serde(rename = "payload")]
    Text(String),
    #[serde(rename = "payload_base64")]
    Bytes(String),
}

impl Payload {
    fn of(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes)
            .map_or_else(|error| Self::Bytes(BASE64_STANDARD.encode(error.as_bytes())), Self::Text)
    }
}

impl Listed {
    /// The same without payload and headers.
    pub(super) fn without_content(self) -> Self {
        Self { content: None, ..self }
    }
}

impl From<FailedRecord> for Listed {
    fn from(record: FailedRecord) -> Self {
        Self {
            id: record.id,
            event_id: record.event_id.to_string(),
            partition: record.lane.partition.number(),
            key: record.lane.key.into(),
            handler: record.lane.handler.into(),
            record_type: record.record_type,
            attempts: record.attempts,
            target: None,
            error: record.last_error,
            error_class: None,
            error_kind: None,
            scheduled_seconds_ago: record.age.as_secs_f64(),
            failed_seconds_ago: None,
            content_type: record.content_type,
            payload_bytes: record.payload.len(),
            content: Some(Content { headers: record.headers, payload: Payload::of(record.payload) }),
        }
    }
}

impl From<DeadLetter> for Listed {
    fn from(letter: DeadLetter) -> Self {
        Self {
            id: letter.id,
            event_id: letter.event_id.to_string(),
            partition: letter.lane.partition.number(),
            key: letter.lane.key.into(),
            handler: letter.lane.handler.into(),
            record_type: letter.record_type,
            attempts: letter.attempts,
            target: Some(letter.target),
            error: Some(letter.error),
            error_class: letter.error_class,
            error_kind: Some(letter.error_kind),
            scheduled_seconds_ago: letter.age.as_secs_f64(),
            failed_seconds_ago: Some(letter.since.as_secs_f64()),
            content_type: letter.content_type,
            payload_bytes: letter.payload.len(),
            content: Some(Content { headers: letter.headers, payload: Payload::of(letter.payload) }),
        }
    }
}

/// For people: a line of facts, and a line for each text. Texts are quoted, so that no control character reaches the
/// terminal.
impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, handler, record_type, key, partition, attempts, .. } = self;
        write!(f, "{id}  {}  {}", plain(record_type), plain(handler))?;
        write!(f, "  key {key:?}  partition {partition}  attempts {attempts}")?;
        writeln!(f, "  scheduled {} ago", ago(self.scheduled_seconds_ago))?;
        if let (Some(target), Some(since)) = (&self.target, self.failed_seconds_ago) {
            writeln!(f, "    target   {target:?}, failed {} ago", ago(since))?;
        }
        if let Some(error) = &self.error {
            writeln!(f, "    error    {error:?}")?;
        }
        writeln!(f, "    event    {}", self.event_id)?;
        let Some(Content { headers, payload }) = &self.content else { return Ok(()) };
        for (name, value) in headers {
            writeln!(f, "    header   {name:?} = {value:?}")?;
        }
        write!(f, "    payload  {} of {} bytes: ", plain(&self.content_type), self.payload_bytes)?;
        match payload {
            Payload::Text(text) => writeln!(f, "{}", plain(text)),
            Payload::Bytes(base64) => writeln!(f, "base64 {base64}"),
        }
    }
}

/// The text with its control characters escaped.
fn plain(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// A time without fractions of a second.
fn ago(seconds: f64) -> impl fmt::Display {
    humantime::format_duration(Duration::from_secs(seconds as u64))
}
