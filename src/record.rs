//! Records: what a service schedules, what a handler receives, and the statuses and outcomes of records.

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

/// An event that a service schedules. `#[derive(OutboxEvent)]` implements it.
///
/// The record type is stored with every record and names the event for years: choose it by hand and never
/// rename it. The key gives the order: records of one key are delivered one after another.
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

    /// The version of the payload's form, from 1 on. The media type of the record stores it (from 2 on, as in
    /// `application/json; version=2`), so that a build with an older version does not misread a newer
    /// payload: the record waits for a build that can read it.
    const VERSION: u32 = 1;

    /// The codec of the payload. In the derive: `codec = cbor`, `message_pack`, `protobuf`, or a constant of
    /// yours.
    const CODEC: Codec<Self> = Codec::json();

    /// The key of this event, 1 to 255 bytes without NUL, such as `order-42`.
    fn key(&self) -> Cow<'_, str>;

    /// Converts a payload of version `from`, which is below [`OutboxEvent::VERSION`], to this version's form.
    ///
    /// # Errors
    /// The problem of the payload. The text is logged and stored: it must not contain the payload. The record
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
    /// Waits for delivery. The only status that a scan reads.
    Pending = 0,
    /// Completed, and kept because of `completed = "keep"`.
    Completed = 1,
    /// The retries and the fallback are spent; a person decides.
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

/// The sequence number of a record in its database. It gives the order.
pub type RecordId = i64;

/// All that a handler receives of a record, except the payload.
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
    /// The generation under which this instance owns the partition: a fencing token for systems that can
    /// compare tokens.
    pub generation: Generation,
    /// The number of the attempt, from 1 on.
    pub attempt: u32,
    /// The headers given at scheduling.
    pub headers: Headers,
    /// The time since the record was scheduled, by the database's clock at the fetch.
    pub age: Duration,
    /// The time until the record expires, by the database's clock at the fetch. `None` if the record has no
    /// deadline.
    pub expires_in: Option<Duration>,
}

impl Delivery {
    /// The trace id given at scheduling, if any.
    pub fn trace_id(&self) -> Option<&str> {
        self.headers.get(TRACE_ID_HEADER).map(String::as_str)
    }
}

/// A record as read from the database.
#[derive(Clone, Debug)]
pub struct Record {
    /// All but the payload.
    pub delivery: Delivery,
    /// The encoded event.
    pub payload: Vec<u8>,
}

impl Record {
    /// The number of failures counted so far.
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

/// A lane: all records of one key for one handler, the unit of order.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// The partition of the key.
    pub partition: Partition,
    /// The record key.
    pub key: Name,
    /// The handler id.
    pub handler: Name,
}

/// The debug form shows only the partition and the handler, because keys can be personal data.
impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lane({}, {}, key of {} bytes)", self.partition, self.handler, self.key.len())
    }
}

/// Why a lane is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StopReason {
    /// The record waits for its next attempt.
    Retrying,
    /// The record has failed for good; a person decides.
    Blocked,
    /// This build has no handler for the record, or cannot decode it. An instance that can continues the lane.
    Unroutable,
    /// The stop is over, but so many records are held that they return in steps.
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

/// A stopped lane as stored. The row exists while the lane is stopped or its records return in steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The lane.
    pub lane: Lane,
    /// The reason of the stop.
    pub reason: StopReason,
    /// The record that has stopped the lane.
    pub record: RecordId,
    /// Whether that record still exists. If not, the lane can go on.
    pub record_exists: bool,
    /// The id up to which the held records are pending again, while the lane is releasing.
    pub released_to: RecordId,
}

impl Stop {
    /// Whether no record of the lane is to be delivered.
    pub(crate) fn stands_still(&self) -> bool {
        self.reason != StopReason::Releasing
    }
}

/// The change to write about one record after its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The id of the record.
    pub id: RecordId,
    /// The count of failures at the fetch. If another instance has counted a failure since, the write is
    /// refused.
    pub failures: u32,
    /// The change to write.
    pub change: Change,
}

/// The possible outcomes of a record in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Completed: the row is deleted, archived or kept, as configured.
    Complete,
    /// Completed, and the lane that this record had stopped goes on: its held records return.
    CompleteAndResume,
    /// The lane that this record had stopped goes on (the record was completed by the transaction of its
    /// handler, or this build knows its handler): its held records return.
    Resume,
    /// A step of the releasing lane that this record had stopped: the next held records return.
    Release,
    /// The releasing lane that this record had stopped is stopped again by another record: no more held
    /// records return.
    StopRelease {
        /// The other record.
        by: RecordId,
    },
    /// An attempt has failed, and another follows after the delay. If `stop`, later records of the lane wait.
    Retry {
        /// The time from the write, by the database's clock.
        delay: Duration,
        /// The error of the attempt, cut to a limit.
        error: String,
        /// Whether the lane is stopped meanwhile.
        stop: bool,
        /// Whether the attempt counts.
        counted: bool,
    },
    /// The record has failed for good.
    Fail {
        /// The error of the last attempt, cut to a limit.
        error: String,
        /// What becomes of the lane.
        lane: OnFailure,
        /// Whether the attempt counts.
        counted: bool,
    },
    /// This build has no handler for the record, or cannot decode it: the lane is stopped, and no attempt
    /// counts.
    Unroutable,
    /// A later record of a stopped lane: it leaves the pending set until the lane goes on.
    Hold {
        /// The record that has stopped the lane. If that stop is over, the hold is refused.
        behind: RecordId,
    },
}

impl Change {
    /// Whether the change concerns only a lane: the record that names the lane is not changed.
    pub(crate) fn is_of_lane(&self) -> bool {
        matches!(self, Self::Resume | Self::Release | Self::StopRelease { .. })
    }
}

/// What becomes of a lane whose record has failed for good. In settings: `block` or `continue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnFailure {
    /// The lane is stopped until a person retries, discards or replaces the record.
    Block,
    /// The lane goes on. If this record had stopped it, its held records return.
    Continue,
}
