//! A message, as a handler receives it.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use keylane::HandlerError;
use keylane_message::{Received, TraceContext};
use rdkafka::{Message as _, message::Headers, message::OwnedMessage};

/// A message of a topic.
pub struct Message {
    pub(crate) raw: OwnedMessage,
    topic: Arc<str>,
    event_id: String,
    record_type: Option<String>,
    key: Option<String>,
    content_type: Option<String>,
    headers: BTreeMap<String, String>,
    trace: TraceContext,
    /// The payload, if it differs from the body.
    payload: Option<Vec<u8>>,
    /// The reason why the message cannot be handled, if any.
    pub(crate) unreadable: Option<String>,
}

/// The debug form shows neither payload nor key.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic)
            .field("partition", &self.partition())
            .field("offset", &self.offset())
            .field("event_id", &self.event_id)
            .finish_non_exhaustive()
    }
}

impl Message {
    pub(crate) fn read(topic: &Arc<str>, raw: OwnedMessage) -> Self {
        let place = || format!("{}:{}:{}", raw.topic(), raw.partition(), raw.offset());
        let mut message = Self {
            topic: Arc::clone(topic),
            event_id: String::new(),
            record_type: None,
            key: None,
            content_type: None,
            headers: BTreeMap::new(),
            trace: TraceContext::default(),
            payload: None,
            unreadable: None,
            raw: OwnedMessage::new(None, None, String::new(), rdkafka::Timestamp::NotAvailable, 0, 0, None),
        };
        let headers = raw.headers().into_iter().flat_map(Headers::iter);
        let headers = headers.filter_map(|header| Some((header.key, header.value?)));
        match Received::read(headers, raw.key(), raw.payload().unwrap_or_default()) {
            Ok(read) => {
                // A message without an id is identified by its place.
                message.event_id = read.event_id.filter(|id| !id.is_empty()).unwrap_or_else(place);
                message.record_type = read.record_type;
                message.key = read.key;
                message.content_type = read.content_type;
                message.headers = read.headers;
                message.trace = read.trace;
                message.payload = match read.payload {
                    Cow::Borrowed(part) if part.len() == raw.payload().map_or(0, <[u8]>::len) => None,
                    other => Some(other.into_owned()),
                };
            }
            Err(error) => {
                message.event_id = place();
                message.unreadable = Some(error.to_string());
            }
        }
        message.raw = raw;
        message
    }

    /// The topic of the message.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The partition of the topic.
    pub fn partition(&self) -> i32 {
        self.raw.partition()
    }

    /// The offset in the partition.
    pub fn offset(&self) -> i64 {
        self.raw.offset()
    }

    /// The event id, which is the same in every repetition. `TOPIC:PARTITION:OFFSET` if the message has no
    /// id.
    pub fn event_id(&self) -> &str {
        &self.event_id
    }

    /// The record type.
    pub fn record_type(&self) -> Option<&str> {
        self.record_type.as_deref()
    }

    /// The record key, or the key of the message if its form has no place for the record key.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The media type of the payload.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The headers that do not belong to the form of the message.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.headers
    }

    /// The trace of the event. The span of the handler has it, too.
    pub fn trace(&self) -> &TraceContext {
        &self.trace
    }

    /// The payload of the event.
    pub fn payload(&self) -> &[u8] {
        self.payload.as_deref().or_else(|| self.raw.payload()).unwrap_or_default()
    }

    /// The payload as JSON.
    ///
    /// # Errors
    /// A permanent error, which names the place in the text and not its content.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, HandlerError> {
        serde_json::from_slice(self.payload()).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let text = format!("the payload is not the expected JSON at line {line}, column {column}");
            HandlerError::permanent(text).class("decode")
        })
    }

    /// The approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let copy = self.payload.as_ref().map_or(0, Vec::len);
        self.raw.payload().map_or(0, <[u8]>::len) + copy + 2 * headers + 512
    }

    /// A span that restores the trace.
    pub(crate) fn span(&self, group: &str) -> tracing::Span {
        tracing::info_span!(
            target: "keylane_consumer",
            "consume",
            topic = &*self.topic,
            partition = self.partition(),
            offset = self.offset(),
            group,
            event_id = &*self.event_id,
            record_type = self.record_type.as_deref(),
            trace_id = self.trace.trace_id.as_deref(),
            traceparent = self.trace.traceparent.as_deref(),
            tracestate = self.trace.tracestate.as_deref(),
        )
    }
}
