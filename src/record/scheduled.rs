//! Records to be inserted, and records to be cancelled.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::Headers;
use crate::{name::Name, partition::Partition};

/// When a record may be delivered for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Due {
    /// At the insert.
    #[default]
    Now,
    /// This long after the insert, by the database's clock.
    After(Duration),
    /// Not before this time, by the database's clock.
    At(SystemTime),
}

/// When a record expires, by the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// This long after the insert.
    After(Duration),
    /// At this time.
    At(SystemTime),
}

/// A record to be inserted: one event for one handler.
#[derive(Clone, Debug)]
pub struct NewRecord {
    /// The identity of the event for handlers, brokers and inboxes, by default a uuid v7.
    pub event_id: Uuid,
    /// The partition of the key.
    pub partition: Partition,
    /// The key that orders the record.
    pub key: String,
    /// The handler that takes the record.
    pub handler: Name,
    /// The record type.
    pub record_type: Name,
    /// The media type of the payload.
    pub content_type: Name,
    /// The encoded event.
    pub payload: Vec<u8>,
    /// The headers as stored.
    pub headers: Headers,
    /// The time of the first delivery.
    pub due: Due,
    /// The time after which the handler is not called any more.
    pub deadline: Option<Deadline>,
    /// The dedup key of the event. Kept only with a record that is not due yet, so that cancelling the record
    /// frees the key.
    pub dedup_key: Option<String>,
}

/// The records to cancel, if they are not due yet.
#[derive(Clone, Debug)]
pub struct Cancel {
    /// The partition of the key.
    pub partition: Partition,
    /// The key of the records.
    pub key: String,
    /// The event id or dedup key of the records.
    pub named: Named,
}

/// The name of an event.
#[derive(Clone, Debug)]
pub enum Named {
    /// The event id.
    Event(Uuid),
    /// The dedup key with which the event was scheduled.
    DedupKey(String),
}
