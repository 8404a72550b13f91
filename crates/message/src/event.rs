//! The facts of one event, which every form writes.

use std::{borrow::Cow, collections::BTreeMap};

use keylane::Record;

static NO_HEADERS: BTreeMap<String, String> = BTreeMap::new();

/// The facts of one event, which a [`Form`](crate::Form) writes into a message. A record of an outbox has all
/// of them. A producer without an outbox fills them in.
///
/// ```
/// use keylane_message::{Binding, Event, Form};
///
/// let event = Event::new("0198f5f0-1c7e-7000-8000-000000000001", "order.placed", "order-42", b"{}");
/// let (headers, body) = event.write(Form::CloudEvents, Binding::Kafka);
/// assert!(headers.contains(&("ce_type".into(), "order.placed".into())));
/// assert_eq!(&*body, b"{}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The event id, which is the same in every repetition.
    pub id: Cow<'a, str>,
    /// The source of the event: the `source` of a CloudEvent.
    pub source: &'a str,
    /// The record type.
    pub record_type: &'a str,
    /// The record key.
    pub key: &'a str,
    /// A number that grows along the events of a key: the record id.
    pub sequence: Option<i64>,
    /// The media type of the payload.
    pub content_type: &'a str,
    /// The headers given at scheduling.
    pub headers: &'a BTreeMap<String, String>,
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Event<'a> {
    /// An event of JSON from the source `/keylane`, without a sequence and without headers.
    pub fn new(id: impl Into<Cow<'a, str>>, record_type: &'a str, key: &'a str, payload: &'a [u8]) -> Self {
        Self {
            id: id.into(),
            source: "/keylane",
            record_type,
            key,
            sequence: None,
            content_type: "application/json",
            headers: &NO_HEADERS,
            payload,
        }
    }

    /// The facts of a record. `source` is the source of its CloudEvent.
    pub fn of(record: &'a Record, source: &'a str) -> Self {
        let delivery = &record.delivery;
        Self {
            id: delivery.event_id.to_string().into(),
            source,
            record_type: delivery.record_type.as_str(),
            key: delivery.key.as_str(),
            sequence: Some(delivery.id),
            content_type: delivery.content_type.as_str(),
            headers: &delivery.headers,
            payload: &record.payload,
        }
    }

    /// The trace id: the header `trace_id`, or the trace id in the header `traceparent`.
    pub fn trace_id(&self) -> Option<&'a str> {
        trace_id(self.headers.get("trace_id"), self.headers.get("traceparent"))
    }
}

/// The given trace id, or the one in a W3C trace context (`00-TRACE-SPAN-FLAGS`).
pub(crate) fn trace_id<'a>(given: Option<&'a String>, traceparent: Option<&'a String>) -> Option<&'a str> {
    let of_parent = || traceparent.and_then(|parent| parent.split('-').nth(1));
    given.map(String::as_str).or_else(of_parent)
}
