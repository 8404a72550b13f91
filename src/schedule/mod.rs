//! Scheduling: writes an event as rows in the transaction of the user.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

mod routes;
mod scheduler;

pub(crate) use routes::Routes;
pub(crate) use scheduler::{DefaultHeaders, Scheduler};

use crate::{
    codec::{self, EncodeError},
    name::Name,
    record::{BoxedError, Deadline, Due, Headers, OutboxEvent, TRACE_ID_HEADER},
    store::StoreError,
};

/// The result of scheduling one event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheduled {
    /// The identity of the event.
    pub event_id: Uuid,
    /// The number of records written: one per handler of the type. 0 for a duplicate.
    pub records: usize,
    /// Whether the dedup key existed already, so that nothing was written.
    pub duplicate: bool,
}

/// Why an event was not scheduled. Nothing was written. Whether the user's transaction can go on depends on
/// the database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The key is empty.
    #[error("record key is empty: give what must stay in order, such as order-42")]
    EmptyKey,
    /// The key is too long.
    #[error("record key has {length} bytes, the limit is 255: shorten it or hash its tail")]
    KeyTooLong {
        /// The length in bytes of UTF-8.
        length: usize,
    },
    /// The key has a NUL character.
    #[error(
        "record key has a NUL character at byte {position}, which databases cannot store in text: take it out"
    )]
    NulInKey {
        /// The position in bytes, from 0.
        position: usize,
    },
    /// The record type is not a valid name.
    #[error(
        "record type {record_type:?} is not valid: it needs 1 to 128 bytes of letters, digits and . _ - : /"
    )]
    RecordType {
        /// The record type as given.
        record_type: String,
    },
    /// The content type is empty, too long or not plain.
    #[error(
        "content type {content_type:?} is not valid: it needs 1 to 128 bytes of printable ASCII, such as application/json"
    )]
    ContentType {
        /// The content type as given.
        content_type: String,
    },
    /// The payload is too large.
    #[error(
        "payload has {bytes} bytes, the limit is {limit} (schedule.max_payload_bytes): store it elsewhere and send its address, or raise the limit"
    )]
    PayloadTooLarge {
        /// The size of the encoded payload in bytes.
        bytes: usize,
        /// The limit in bytes, from the settings.
        limit: usize,
    },
    /// The headers are too large.
    #[error("headers have {bytes} bytes, the limit is {limit} (schedule.max_header_bytes)")]
    HeadersTooLarge {
        /// The size of names and values together in bytes.
        bytes: usize,
        /// The limit in bytes, from the settings.
        limit: usize,
    },
    /// The dedup key is empty, too long or has a NUL character.
    #[error("dedup key has {length} bytes; it needs 1 to 255 without NUL")]
    DedupKey {
        /// The length in bytes.
        length: usize,
    },
    /// No handler is declared for the type.
    #[error(
        "no handler takes record type {record_type:?}: register one and start it once, so that outbox_handler lists it; nothing was scheduled"
    )]
    NoHandler {
        /// The record type.
        record_type: String,
    },
    /// The connection is in no transaction.
    #[error(
        "the connection is in no transaction, so the event would be kept even if the work it tells of is not: begin one (pool.begin()) and schedule on it, use Outbox::transaction, or set schedule.require_transaction to false"
    )]
    NoTransaction,
    /// Too many distinct keys for one call at the strict order level.
    #[error(
        "{keys} distinct keys in one call, the limit is 4096 with schedule.order = \"strict\": split the call"
    )]
    TooManyKeys {
        /// The number of distinct keys.
        keys: usize,
    },
    /// The event could not be encoded as JSON.
    #[error("event could not be encoded as JSON: {0}")]
    Encode(serde_json::Error),
    /// A codec other than JSON could not encode the event.
    #[error("event could not be encoded as {content_type}: {problem}")]
    Codec {
        /// The media type of the codec.
        content_type: &'static str,
        /// The error of the codec.
        problem: BoxedError,
    },
    /// The database refused a statement or could not be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<serde_json::Error> for ScheduleError {
    fn from(error: serde_json::Error) -> Self {
        Self::Encode(error)
    }
}

/// Headers, due time, deadline, event id and dedup key of an event.
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// let options = ScheduleOptions::new()
///     .header("tenant", "north")
///     .trace_id("4bf92f35")
///     .dedup_key("request-17") // a second call with it writes nothing
///     .event_id(uuid::Uuid::now_v7()) // by which an inbox recognises it
///     .after(Duration::from_secs(60)) // or .at(time)
///     .expires_after(Duration::from_secs(3600)); // or .expires_at(time)
/// let order = OrderPlaced { id: 42 };
/// let scheduled = outbox.transaction(async |tx| outbox.schedule_with(tx, &order, options).await).await?;
/// assert!(!scheduled.duplicate);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ScheduleOptions {
    headers: Headers,
    due: Due,
    deadline: Option<Deadline>,
    event_id: Option<Uuid>,
    dedup_key: Option<String>,
}

impl ScheduleOptions {
    /// No headers, due at once, no deadline, a new event id, no dedup key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets the trace id: the header `trace_id`.
    #[must_use]
    pub fn trace_id(self, trace_id: impl Into<String>) -> Self {
        self.header(TRACE_ID_HEADER, trace_id)
    }

    /// Sets the identity of the event instead of a new uuid v7.
    #[must_use]
    pub fn event_id(mut self, event_id: Uuid) -> Self {
        self.event_id = Some(event_id);
        self
    }

    /// Delivers the event after this delay from the insert, by the database's clock. A delayed record does
    /// not hold back its key: until the record is due, later records are delivered first. Once due, it is
    /// delivered before the records still pending.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Delivers the event not before this time, by the database's clock; see [`after`](Self::after).
    #[must_use]
    pub fn at(mut self, time: SystemTime) -> Self {
        self.due = Due::At(time);
        self
    }

    /// Lets the event expire after this time from the insert, by the database's clock, whether retries are
    /// left or not and whether the event was due or not. From then on its handlers are not called: the record
    /// has failed with class `expired`. A fallback handler is called with that failure. Without a fallback
    /// handler the record is failed, and `on_failure` decides about its lane. `block` stops the key for an
    /// event that is useless by then, so give handlers of such events `on_failure = "continue"`.
    #[must_use]
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.deadline = Some(Deadline::After(time));
        self
    }

    /// Lets the event expire at this time, by the database's clock; see
    /// [`expires_after`](Self::expires_after).
    #[must_use]
    pub fn expires_at(mut self, time: SystemTime) -> Self {
        self.deadline = Some(Deadline::At(time));
        self
    }

    /// Schedules the event only if no event with this dedup key was scheduled within `retention.dedup_for`.
    /// Cancelling the event frees the key.
    #[must_use]
    pub fn dedup_key(mut self, dedup_key: impl Into<String>) -> Self {
        self.dedup_key = Some(dedup_key.into());
        self
    }

    pub(crate) fn dedup_key_given(&self) -> Option<&str> {
        self.dedup_key.as_deref()
    }
}

/// An encoded event, for types without a Rust type in this process.
///
/// ```
/// use keylane::RawEvent;
///
/// let event = RawEvent::new("order.placed", "order-42", r#"{"id":42}"#);
/// let picture = RawEvent::new("photo.taken", "photo-7", vec![0x89, 0x50]).content_type("image/png");
/// assert_eq!((&*event.content_type, &*picture.content_type), ("application/json", "image/png"));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RawEvent {
    /// The record type.
    pub record_type: Name,
    /// The key that orders the event.
    pub key: String,
    /// The media type of the payload. Typed handlers decode `application/json` and the media type of the
    /// event's [`Codec`](crate::encoding::Codec).
    pub content_type: Name,
    /// The encoded event.
    pub payload: Vec<u8>,
}

impl RawEvent {
    /// An event with this type and key, whose payload is JSON.
    pub fn new(record_type: impl Into<Name>, key: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        let (record_type, key, payload) = (record_type.into(), key.into(), payload.into());
        Self { record_type, key, content_type: Name::from_static(codec::JSON), payload }
    }

    /// Sets another media type of the payload.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<Name>) -> Self {
        self.content_type = content_type.into();
        self
    }

    pub(crate) fn encode<E: OutboxEvent>(event: &E) -> Result<Self, ScheduleError> {
        Ok(Self {
            record_type: Name::from_static(E::RECORD_TYPE),
            key: event.key().into_owned(),
            content_type: codec::content_type::<E>(),
            payload: codec::encode(event).map_err(|error| match error {
                EncodeError::Json(error) => ScheduleError::Encode(error),
                EncodeError::Other { content_type, problem } => {
                    ScheduleError::Codec { content_type, problem }
                }
            })?,
        })
    }
}
