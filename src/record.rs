//! Records: what a service schedules, what a handler is given, and the words for their lives.

use std::{borrow::Cow, collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

mod scheduled;

pub use scheduled::{Cancel, Deadline, Due, Named, NewRecord};

use crate::{encoding::Codec, instance::Generation, name::Name, partition::Partition};

/// The longest record key, in bytes of UTF-8.
pub(crate) const KEY_LIMIT_BYTES: usize = 255;
/// The longest record type and handler id, in bytes.
pub(crate) const NAME_LIMIT_BYTES: usize = 128;
/// The header under which a trace id is stored and passed on.
pub(crate) const TRACE_ID_HEADER: &str = "trace_id";

/// Headers of a record: short text pairs that travel with the payload.
pub type Headers = BTreeMap<String, String>;

/// An event that a service schedules. `#[derive(OutboxEvent)]` writes this.
///
/// The record type is stored with every record and names the event for years: choose it by hand and
/// never rename it. The key orders: records of one key are delivered one after another.
///
/// ```
/// use std::borrow::Cow;
///
/// use keylane::OutboxEvent;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct OrderPlaced {
///     id: u64,
/// }
///
/// impl OutboxEvent for OrderPlaced {
///     const RECORD_TYPE: &'static str = "order.placed";
///
///     fn key(&self) -> Cow<'_, str> {
///         format!("order-{}", self.id).into()
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an outbox event",
    note = "derive it: #[derive(Serialize, Deserialize, OutboxEvent)] with #[outbox(record_type = \"…\", key = \"…\")]"
)]
pub trait OutboxEvent: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The stable name of this event, 1 to 128 bytes, such as `order.placed`.
    const RECORD_TYPE: &'static str;

    /// The version of the payload's form, 1 and up. It is stored in the media type of the record (from 2 on as in
    /// `application/json; version=2`), so that a build with an older version does not misread a newer payload: the record
    /// waits for a build that can read it.
    const VERSION: u32 = 1;

    /// How the payload is encoded. In the derive: `codec = cbor`, or `message_pack`, `protobuf`, or a constant of your own.
    const CODEC: Codec<Self> = Codec::json();

    /// The key of this event, 1 to 255 bytes without NUL, such as `order-42`.
    fn key(&self) -> Cow<'_, str>;

    /// Brings a payload of version `from`, which is below [`OutboxEvent::VERSION`], to this version's form.
    ///
    /// # Errors
    /// What is wrong with the payload. The text is logged and stored: it must not contain the payload. The record
    /// then counts as one that cannot be decoded.
    fn upcast(from: u32, payload: serde_json::Value) -> Result<serde_json::Value, BoxedError> {
        drop(payload);
        Err(format!("there is no upcast from version {from}: write one with #[outbox(upcast = …)]").into())
    }
}

/// An error of any kind.
pub type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// The status of a stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Status {
    /// Waits to be delivered; the only status that a poll reads.
    Pending = 0,
    /// Delivered, and kept because `completed = "keep"`.
    Completed = 1,
    /// Its retries and its fallback are spent; a person decides.
    Failed = 2,
    /// Waits behind a record that has stopped its lane.
    Held = 3,
    /// Not due yet: scheduled for later, or waiting for its next attempt.
    Delayed = 4,
}

impl Status {
    /// All statuses, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Completed, Self::Failed, Self::Held, Self::Delayed];

    /// The number stored in `outbox_record.status`.
    pub const fn code(self) -> i64 {
        self as i64
    }

    /// The status with this stored number.
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }

    /// The word used in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Held => "held",
            Self::Delayed => "delayed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The database's own sequence number of a record: the only order there is.
pub type RecordId = i64;

/// What a handler is told about the record it is given.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// The sequence number in this database. For idempotency use [`Delivery::event_id`].
    pub id: RecordId,
    /// The identity of the event; the same for every attempt and every handler.
    pub event_id: Uuid,
    /// The record key.
    pub key: Name,
    /// The id of the handler that the record is for.
    pub handler: Name,
    /// The record type.
    pub record_type: Name,
    /// The media type of the payload.
    pub content_type: Name,
    /// The partition of the key.
    pub partition: Partition,
    /// The generation under which this instance owns the partition: a fencing token for systems
    /// that can compare one.
    pub generation: Generation,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// The headers given at scheduling.
    pub headers: Headers,
    /// How long ago the record was scheduled, by the database's clock, when it was fetched.
    pub age: Duration,
    /// How long until the record expires, by the database's clock, when it was fetched; `None` if it has no
    /// deadline.
    pub expires_in: Option<Duration>,
}

impl Delivery {
    /// The trace id given at scheduling, if any.
    pub fn trace_id(&self) -> Option<&str> {
        self.headers.get(TRACE_ID_HEADER).map(String::as_str)
    }
}

/// A record out of the database, ready to be handled.
#[derive(Clone, Debug)]
pub struct Record {
    /// Everything but the payload.
    pub delivery: Delivery,
    /// The encoded event.
    pub payload: Vec<u8>,
}

impl Record {
    /// Failures counted so far.
    pub fn failures(&self) -> u32 {
        self.delivery.attempt - 1
    }

    /// The lane this record belongs to.
    pub fn lane(&self) -> Lane {
        Lane {
            partition: self.delivery.partition,
            key: self.delivery.key.clone(),
            handler: self.delivery.handler.clone(),
        }
    }
}

/// A lane: the queue of one key for one handler, the unit of order.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// The partition of the key.
    pub partition: Partition,
    /// The record key.
    pub key: Name,
    /// The handler id.
    pub handler: Name,
}

/// Keys can be personal data: the debug form shows the partition and the handler only.
impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lane({}, {}, key of {} bytes)", self.partition, self.handler, self.key.len())
    }
}

/// Why a lane stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StopReason {
    /// A record waits for its next attempt.
    Retrying,
    /// A record has failed for good; a person decides.
    Blocked,
    /// This build has no such handler; an instance that has it takes the lane up.
    Unroutable,
    /// Nothing stops it any more, but so much is held that it returns in steps.
    Releasing,
}

impl StopReason {
    /// The word stored in `outbox_lane.reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retrying => "retrying",
            Self::Blocked => "blocked",
            Self::Unroutable => "unroutable",
            Self::Releasing => "releasing",
        }
    }

    /// The reason with this stored word.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Retrying, Self::Blocked, Self::Unroutable, Self::Releasing];
        all.into_iter().find(|reason| reason.as_str() == word)
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A stopped lane as stored: a row exists only while the lane stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Which lane.
    pub lane: Lane,
    /// Why.
    pub reason: StopReason,
    /// The record that stops it.
    pub record: RecordId,
    /// Whether that record still exists. If not, nothing stops the lane any more.
    pub record_exists: bool,
    /// Up to which id its held records are pending again, while it is releasing.
    pub released_to: RecordId,
}

impl Stop {
    /// Whether nothing of the lane is to be delivered.
    pub(crate) fn stands_still(&self) -> bool {
        self.reason != StopReason::Releasing
    }
}

/// What is written about one record after it was handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Which record.
    pub id: RecordId,
    /// Failures counted when the record was fetched. The write is refused if another instance has counted one
    /// since.
    pub failures: u32,
    /// What to write.
    pub change: Change,
}

/// The possible outcomes as the database sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Delivered: delete, archive or keep, as configured.
    Complete,
    /// As `Complete`, and the lane that this record had stopped goes on: its held records return.
    CompleteAndResume,
    /// Nothing stops the lane any more (the record was completed in its handler's own transaction,
    /// or this build knows its handler): its held records return.
    Resume,
    /// The lane that is releasing under the name of this record: the next of its held records return.
    Release,
    /// The same lane stands still again, stopped by another of its records: nothing more of it returns.
    StopRelease {
        /// That record.
        by: RecordId,
    },
    /// Failed, another attempt after the delay. `stop`: later records of the lane wait for it.
    Retry {
        /// From the database's clock.
        delay: Duration,
        /// Why it failed, cut to a limit.
        error: String,
        /// Whether the lane stands still meanwhile.
        stop: bool,
        /// Whether it counts as a failed attempt.
        counted: bool,
    },
    /// Failed for good.
    Fail {
        /// Why it failed, cut to a limit.
        error: String,
        /// What becomes of the lane.
        lane: OnFailure,
        /// Whether it counts as a failed attempt.
        counted: bool,
    },
    /// No handler here: the lane stands still, no attempt is counted.
    Unroutable,
    /// A later record of a lane that stands still: it leaves the pending set until the lane goes on.
    Hold {
        /// The record that stops the lane; the hold is refused if it no longer does.
        behind: RecordId,
    },
}

impl Change {
    /// Whether the change is about a lane: the record that names the lane stays as it is.
    pub(crate) fn is_of_lane(&self) -> bool {
        matches!(self, Self::Resume | Self::Release | Self::StopRelease { .. })
    }
}

/// What becomes of a lane whose record has failed for good. In settings: `block` or `continue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnFailure {
    /// It stands still until someone retries, discards or rewrites the record.
    Block,
    /// It goes on, and if this record had stopped it, its held records return.
    Continue,
}
