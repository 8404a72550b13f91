//! Reading a message: the facts of its event, for consumers.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::{
    event::trace_id,
    form::Form,
    write::{CLOUD_EVENTS_JSON, CONTENT_TYPE, PAYLOAD_TYPE, SEQUENCE, TYPE},
};

/// The facts of an event as its message has them. A fact without a place in the form is `None`.
///
/// ```
/// use keylane_message::{Form, Received};
///
/// let headers = [("ce_specversion", "1.0"), ("ce_id", "7"), ("ce_type", "order.placed"), ("ce_source", "/shop")];
/// let headers = headers.map(|(name, value)| (name, value.as_bytes()));
/// let received = Received::read(headers, Some(b"order-42"), b"{}")?;
/// assert_eq!((received.form, received.event_id.as_deref()), (Form::CloudEvents, Some("7")));
/// assert_eq!((received.record_type.as_deref(), received.key.as_deref()), (Some("order.placed"), Some("order-42")));
/// # Ok::<(), keylane_message::ReadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received<'a> {
    /// The form of the message.
    pub form: Form,
    /// The event id, which is the same in every repetition.
    pub event_id: Option<String>,
    /// The source of the event.
    pub source: Option<String>,
    /// The record type.
    pub record_type: Option<String>,
    /// The record key, or the key of the message if the form has no place for the record key.
    pub key: Option<String>,
    /// A number that grows along the events of one key and one source.
    pub sequence: Option<i64>,
    /// The trace of the event.
    pub trace: TraceContext,
    /// The media type of the payload.
    pub content_type: Option<String>,
    /// The other headers, and the attributes of a CloudEvent that have no field here, such as `ce_time`.
    /// Headers that are not text are left out.
    pub headers: BTreeMap<String, String>,
    /// The payload of the record.
    pub payload: Cow<'a, [u8]>,
}

/// The trace of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceContext {
    /// The W3C trace context: `00-TRACE-SPAN-FLAGS`.
    pub traceparent: Option<String>,
    /// The additions of vendors to the trace context.
    pub tracestate: Option<String>,
    /// The trace id: the header of its own, or the one in `traceparent`.
    pub trace_id: Option<String>,
}

/// The reason why a message cannot be read. The texts name places, never the content of the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The message lacks something that its form requires.
    #[error("the message has no {what}, which the form {} needs", form.as_str())]
    Missing {
        /// The form of the message.
        form: Form,
        /// The attribute or field that is missing.
        what: &'static str,
    },
    /// The CloudEvent has another version.
    #[error("the message is a CloudEvent of version {version:?}, but only 1.0 can be read")]
    Version {
        /// The version of the CloudEvent.
        version: String,
    },
    /// The message contains several events.
    #[error("the message is a batch of CloudEvents, but only single events can be read")]
    Batch,
    /// The body is not the JSON that the form requires.
    #[error("the body is not an object of the form {} at line {line}, column {column}", form.as_str())]
    Json {
        /// The form of the message.
        form: Form,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// The payload is declared as base64, but is not base64.
    #[error("the field {field} is not base64")]
    Base64 {
        /// The name of the field.
        field: &'static str,
    },
}

impl<'a> Received<'a> {
    /// Reads a message in the form that its headers name. A message that names no form is plain.
    ///
    /// The case of header names does not matter. Of several headers with one name, the last one counts. `key`
    /// is the key of a message in Kafka.
    ///
    /// # Errors
    /// The message does not have the form that its headers name.
    pub fn read<'h>(
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        key: Option<&[u8]>,
        body: &'a [u8],
    ) -> Result<Self, ReadError> {
        let headers = Headers::of(headers);
        let form = headers.form()?;
        headers.read(form, key, body)
    }

    /// Reads a message that has this form. For producers other than Keylane, whose headers name no form.
    ///
    /// # Errors
    /// The message does not have the form.
    pub fn read_as<'h>(
        form: Form,
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        key: Option<&[u8]>,
        body: &'a [u8],
    ) -> Result<Self, ReadError> {
        Headers::of(headers).read(form, key, body)
    }
}

/// The headers that are text. The reader takes the headers of the form out one by one.
struct Headers(BTreeMap<String, String>);

impl Headers {
    fn of<'h>(headers: impl IntoIterator<Item = (&'h str, &'h [u8])>) -> Self {
        let text =
            |(name, value): (&str, &[u8])| Some((name.to_owned(), String::from_utf8(value.to_vec()).ok()?));
        Self(headers.into_iter().filter_map(text).collect())
    }

    fn name(&self, wanted: &str) -> Option<&String> {
        self.0.keys().find(|name| name.eq_ignore_ascii_case(wanted))
    }

    fn get(&self, name: &str) -> Option<&String> {
        self.0.get(name).or_else(|| self.0.get(self.name(name)?))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let name = self.name(name)?.clone();
        self.0.remove(&name)
    }

    /// An attribute of a CloudEvent in binary mode.
    fn attribute(&mut self, name: &str) -> Option<String> {
        let of_http = |text: String| percent_decode_str(&text).decode_utf8_lossy().into_owned();
        self.take(&format!("ce_{name}")).or_else(|| self.take(&format!("ce-{name}")).map(of_http))
    }

    fn form(&self) -> Result<Form, ReadError> {
        let content_type = self.get(CONTENT_TYPE).map_or("", String::as_str).to_ascii_lowercase();
        Ok(match content_type.split(';').next().map(str::trim) {
            Some(CLOUD_EVENTS_JSON) => Form::CloudEventsJson,
            Some("application/cloudevents-batch+json") => return Err(ReadError::Batch),
            _ if self.get("ce_specversion").or_else(|| self.get("ce-specversion")).is_some() => {
                Form::CloudEvents
            }
            _ if self.get(PAYLOAD_TYPE).is_some() => Form::BaseEvent,
            _ if self.get("id").and(self.get("eventType")).is_some() => Form::Debezium,
            _ => Form::Plain,
        })
    }

    fn read<'a>(self, form: Form, key: Option<&[u8]>, body: &'a [u8]) -> Result<Received<'a>, ReadError> {
        let mut received = Received {
            form,
            event_id: None,
            source: None,
            record_type: None,
            key: key.and_then(|key| String::from_utf8(key.to_vec()).ok()),
            sequence: None,
            trace: TraceContext::default(),
            content_type: None,
            headers: BTreeMap::new(),
            payload: Cow::Borrowed(body),
        };
        match form {
            Form::CloudEvents => self.binary(&mut received)?,
            Form::CloudEventsJson => self.structured(&mut received, body)?,
            Form::BaseEvent => self.envelope(&mut received, body)?,
            Form::Debezium => self.debezium(&mut received)?,
            Form::Plain => received.headers = self.0,
        }
        let (trace, headers) = (&mut received.trace, &received.headers);
        trace.traceparent = trace.traceparent.take().or_else(|| headers.get("traceparent").cloned());
        trace.tracestate = trace.tracestate.take().or_else(|| headers.get("tracestate").cloned());
        let given = trace.trace_id.take().or_else(|| headers.get("trace_id").cloned());
        trace.trace_id = trace_id(given.as_ref(), trace.traceparent.as_ref()).map(str::to_owned);
        Ok(received)
    }

    fn binary(mut self, received: &mut Received<'_>) -> Result<(), ReadError> {
        let content_type = self.take(CONTENT_TYPE);
        event(received, content_type, |name| self.attribute(name))?;
        received.headers = self.0;
        Ok(())
    }

    fn structured<'a>(mut self, received: &mut Received<'a>, body: &'a [u8]) -> Result<(), ReadError> {
        let form = Form::CloudEventsJson;
        let mut fields: BTreeMap<String, &'a RawValue> =
            serde_json::from_slice(body).map_err(|error| unfit(form, &error))?;
        self.take(CONTENT_TYPE);
        let (data, encoded) = (fields.remove("data"), fields.remove("data_base64").map(text));
        received.payload = payload(data, encoded, "data_base64")?;
        let content_type = fields.remove("datacontenttype").map(text);
        // The default value in the JSON format of CloudEvents.
        let content_type = content_type.or_else(|| data.map(|_| "application/json".to_owned()));
        event(received, content_type, |name| fields.remove(name).map(text))?;
        received.headers = self.0;
        received.headers.extend(fields.into_iter().map(|(name, value)| (format!("ce_{name}"), text(value))));
        Ok(())
    }

    fn envelope<'a>(mut self, received: &mut Received<'a>, body: &'a [u8]) -> Result<(), ReadError> {
        let form = Form::BaseEvent;
        let envelope: Envelope<'a> = serde_json::from_slice(body).map_err(|error| unfit(form, &error))?;
        let id = envelope.event_id.or(envelope.message_id);
        received.event_id = Some(id.ok_or(ReadError::Missing { form, what: "messageId" })?);
        received.key = envelope.biz_key.or(received.key.take());
        let json = envelope.payload.map(|_| "application/json".to_owned());
        received.payload = payload(envelope.payload, envelope.payload_base64, "payloadBase64")?;
        self.take(CONTENT_TYPE);
        received.record_type = self.take(TYPE);
        received.content_type = self.take(PAYLOAD_TYPE).or(json);
        received.sequence = self.take(SEQUENCE).and_then(|number| number.parse().ok());
        let header = self.take("traceId");
        received.trace.trace_id = envelope.trace_id.or(header);
        received.headers = self.0;
        Ok(())
    }

    fn debezium(mut self, received: &mut Received<'_>) -> Result<(), ReadError> {
        let id = self.take("id").ok_or(ReadError::Missing { form: Form::Debezium, what: "header id" })?;
        received.event_id = Some(id);
        received.record_type = self.take("eventType");
        received.content_type = self.take(CONTENT_TYPE);
        received.sequence = self.take(SEQUENCE).and_then(|number| number.parse().ok());
        received.headers = self.0;
        Ok(())
    }
}

/// The attributes of a CloudEvent.
fn event(
    received: &mut Received<'_>,
    content_type: Option<String>,
    mut attribute: impl FnMut(&str) -> Option<String>,
) -> Result<(), ReadError> {
    let form = received.form;
    let missing = |what| ReadError::Missing { form, what };
    let version = attribute("specversion").ok_or(missing("specversion"))?;
    if version != "1.0" {
        return Err(ReadError::Version { version });
    }
    received.event_id = Some(attribute("id").ok_or(missing("id"))?);
    received.source = Some(attribute("source").ok_or(missing("source"))?);
    received.record_type = Some(attribute("type").ok_or(missing("type"))?);
    received.key = attribute("partitionkey").or(received.key.take());
    received.sequence = attribute("sequence").and_then(|number| number.parse().ok());
    received.trace.traceparent = attribute("traceparent");
    received.trace.tracestate = attribute("tracestate");
    received.content_type = content_type;
    Ok(())
}

fn payload<'a>(
    json: Option<&'a RawValue>,
    encoded: Option<String>,
    field: &'static str,
) -> Result<Cow<'a, [u8]>, ReadError> {
    let decoded = encoded.map(|text| BASE64_STANDARD.decode(text).map_err(|_| ReadError::Base64 { field }));
    Ok(match (json, decoded) {
        (_, Some(decoded)) => Cow::Owned(decoded?),
        (Some(json), None) => Cow::Borrowed(json.get().as_bytes()),
        (None, None) => Cow::Borrowed(&[]),
    })
}

/// A text, or the JSON of another value.
fn text(value: &RawValue) -> String {
    serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

fn unfit(form: Form, error: &serde_json::Error) -> ReadError {
    ReadError::Json { form, line: error.line(), column: error.column() }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(default)]
    message_id: Option<String>,
    #[serde(default)]
    event_id: Option<String>,
    #[serde(default)]
    trace_id: Option<String>,
    #[serde(default)]
    biz_key: Option<String>,
    /// Keeps `null`, which is a payload, too.
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(default)]
    payload_base64: Option<String>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
