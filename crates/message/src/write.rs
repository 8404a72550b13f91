//! Writing a message: headers and body of an event, one pure function per form.

use std::borrow::Cow;

use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    event::Event,
    form::{Binding, Form},
};

/// The headers of a message, in their order.
pub type MessageHeaders<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// The media type of a CloudEvent in structured mode.
pub(crate) const CLOUD_EVENTS_JSON: &str = "application/cloudevents+json";
/// The headers of facts that a form has no place for.
pub(crate) const TYPE: &str = "keylane-type";
pub(crate) const SEQUENCE: &str = "keylane-sequence";
/// The media type of the payload in an envelope. A message with this header is a `BaseEvent`.
pub(crate) const PAYLOAD_TYPE: &str = "keylane-payload-type";
pub(crate) const CONTENT_TYPE: &str = "content-type";

/// The ASCII characters that the HTTP binding of CloudEvents encodes. It encodes all other characters, too.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

impl<'a> Event<'a> {
    /// The headers and the body of the event's message. The headers of the event follow the headers of the
    /// form. A header of the event that the form has, too, is left out.
    pub fn write(&self, form: Form, binding: Binding) -> (MessageHeaders<'a>, Cow<'a, [u8]>) {
        let (mut headers, body) = self.write_form(form, binding);
        self.add_own(&mut headers);
        (headers, body)
    }

    /// Like [`Event::write`], without the headers of the event.
    pub(crate) fn write_form(&self, form: Form, binding: Binding) -> (MessageHeaders<'a>, Cow<'a, [u8]>) {
        let payload = Cow::Borrowed(self.payload);
        match form {
            Form::CloudEvents => (self.attributes(binding), payload),
            Form::CloudEventsJson => self.structured(),
            Form::BaseEvent => self.envelope(),
            Form::Debezium => (self.debezium(), payload),
            Form::Plain => (Vec::new(), payload),
        }
    }

    /// Adds the headers of the event.
    pub(crate) fn add_own(&self, headers: &mut MessageHeaders<'a>) {
        let of_form = headers.len();
        for (name, value) in self.headers {
            if !has(&headers[..of_form], name) {
                headers.push((Cow::Borrowed(name), Cow::Borrowed(value)));
            }
        }
    }

    fn attributes(&self, binding: Binding) -> MessageHeaders<'a> {
        let names = match binding {
            Binding::Kafka => &KAFKA,
            Binding::Http => &HTTP,
        };
        let text = |value: &'a str| match binding {
            Binding::Kafka => Cow::Borrowed(value),
            Binding::Http => Cow::from(utf8_percent_encode(value, ENCODED)),
        };
        let id = match &self.id {
            Cow::Borrowed(id) => text(id),
            Cow::Owned(id) if binding == Binding::Kafka => Cow::Owned(id.clone()),
            Cow::Owned(id) => Cow::Owned(utf8_percent_encode(id, ENCODED).to_string()),
        };
        let mut headers = Vec::with_capacity(9 + self.headers.len());
        headers.push((names.specversion.into(), "1.0".into()));
        headers.push((names.id.into(), id));
        headers.push((names.source.into(), text(self.source)));
        headers.push((names.r#type.into(), text(self.record_type)));
        headers.push((names.partitionkey.into(), text(self.key)));
        headers.extend(self.sequence.map(|number| (names.sequence.into(), sequence(number))));
        headers.push((CONTENT_TYPE.into(), Cow::Borrowed(self.content_type)));
        for (name, own) in [(names.traceparent, "traceparent"), (names.tracestate, "tracestate")] {
            headers.extend(self.headers.get(own).map(|value| (name.into(), text(value))));
        }
        headers
    }

    fn structured(&self) -> (MessageHeaders<'a>, Cow<'a, [u8]>) {
        let (data, data_base64) = self.json_or_base64();
        let body = Structured {
            specversion: "1.0",
            id: &self.id,
            source: self.source,
            r#type: self.record_type,
            partitionkey: self.key,
            sequence: self.sequence.map(sequence),
            datacontenttype: self.content_type,
            traceparent: self.headers.get("traceparent"),
            tracestate: self.headers.get("tracestate"),
            data,
            data_base64,
        };
        let headers = vec![(CONTENT_TYPE.into(), CLOUD_EVENTS_JSON.into())];
        (headers, json(&body))
    }

    fn envelope(&self) -> (MessageHeaders<'a>, Cow<'a, [u8]>) {
        let (payload, payload_base64) = self.json_or_base64();
        let body = Envelope {
            message_id: &self.id,
            event_id: &self.id,
            trace_id: self.trace_id(),
            biz_key: self.key,
            payload,
            payload_base64,
        };
        let mut headers: MessageHeaders<'a> = vec![
            (CONTENT_TYPE.into(), "application/json".into()),
            (TYPE.into(), Cow::Borrowed(self.record_type)),
            (PAYLOAD_TYPE.into(), Cow::Borrowed(self.content_type)),
        ];
        headers.extend(self.sequence.map(|number| (SEQUENCE.into(), sequence(number))));
        headers.extend(self.trace_id().map(|id| ("traceId".into(), id.into())));
        (headers, json(&body))
    }

    fn debezium(&self) -> MessageHeaders<'a> {
        let mut headers: MessageHeaders<'a> = vec![
            ("id".into(), self.id.clone()),
            ("eventType".into(), Cow::Borrowed(self.record_type)),
            (CONTENT_TYPE.into(), Cow::Borrowed(self.content_type)),
        ];
        headers.extend(self.sequence.map(|number| (SEQUENCE.into(), sequence(number))));
        headers
    }

    /// The payload unchanged if it is JSON, otherwise encoded.
    fn json_or_base64(&self) -> (Option<&'a RawValue>, Option<String>) {
        let payload: &'a [u8] = self.payload;
        let raw = is_json(self.content_type).then(|| serde_json::from_slice::<&RawValue>(payload).ok());
        match raw.flatten() {
            Some(raw) => (Some(raw), None),
            None => (None, Some(BASE64_STANDARD.encode(payload))),
        }
    }
}

/// Whether a media type is one of JSON.
pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let has_end = |end: &str| {
        let start = essence.len().checked_sub(end.len());
        start.and_then(|at| essence.get(at..)).is_some_and(|last| last.eq_ignore_ascii_case(end))
    };
    has_end("/json") || has_end("+json")
}

/// Adds a header unless a header of this name exists.
pub(crate) fn add<'a>(headers: &mut MessageHeaders<'a>, name: Cow<'a, str>, value: Cow<'a, str>) {
    if !has(headers, &name) {
        headers.push((name, value));
    }
}

/// Whether a header exists that readers take for the same one. Case does not matter, and an attribute of a
/// CloudEvent has the names of both protocols.
fn has(headers: &[(Cow<'_, str>, Cow<'_, str>)], name: &str) -> bool {
    let alike = |there: &str| {
        let attributes = attribute(there).zip(attribute(name));
        there.eq_ignore_ascii_case(name) || attributes.is_some_and(|(a, b)| a.eq_ignore_ascii_case(b))
    };
    headers.iter().any(|(there, _)| alike(there))
}

fn attribute(name: &str) -> Option<&str> {
    let (prefix, attribute) = name.split_at_checked(3)?;
    (prefix.eq_ignore_ascii_case("ce_") || prefix.eq_ignore_ascii_case("ce-")).then_some(attribute)
}

/// `sequence` compares as text, as the extension of CloudEvents requires.
fn sequence<'a>(number: i64) -> Cow<'a, str> {
    Cow::Owned(format!("{number:020}"))
}

/// Writes texts and JSON that was parsed before, so that this cannot fail.
fn json<'a>(body: &impl Serialize) -> Cow<'a, [u8]> {
    Cow::Owned(serde_json::to_vec(body).unwrap_or_default())
}

struct Names {
    specversion: &'static str,
    id: &'static str,
    source: &'static str,
    r#type: &'static str,
    partitionkey: &'static str,
    sequence: &'static str,
    traceparent: &'static str,
    tracestate: &'static str,
}

const KAFKA: Names = Names {
    specversion: "ce_specversion",
    id: "ce_id",
    source: "ce_source",
    r#type: "ce_type",
    partitionkey: "ce_partitionkey",
    sequence: "ce_sequence",
    traceparent: "ce_traceparent",
    tracestate: "ce_tracestate",
};

const HTTP: Names = Names {
    specversion: "ce-specversion",
    id: "ce-id",
    source: "ce-source",
    r#type: "ce-type",
    partitionkey: "ce-partitionkey",
    sequence: "ce-sequence",
    traceparent: "ce-traceparent",
    tracestate: "ce-tracestate",
};

#[derive(Serialize)]
struct Structured<'a> {
    specversion: &'a str,
    id: &'a str,
    source: &'a str,
    r#type: &'a str,
    partitionkey: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<Cow<'a, str>>,
    datacontenttype: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    message_id: &'a str,
    event_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    biz_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}
