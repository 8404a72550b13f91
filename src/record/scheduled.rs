//! Records on their way into the database, and those that are taken back.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::Headers;
use crate::{name::Name, partition::Partition};

/// When a record may be delivered for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// This long after the database's clock at the insert.
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

/// A record on its way into the database: one event for one handler.
#[derive(Clone, Debug)]
pub struct NewRecord {
    /// Identity given to handlers, brokers and inboxes; a uuid v7.
    pub event_id: Uuid,
    /// Where it goes.
    pub partition: Partition,
    /// What orders it.
    pub key: String,
    /// Who takes it.
    pub handler: Name,
    /// What it is.
    pub record_type: Name,
    /// How the payload is encoded, as a media type.
    pub content_type: Name,
    /// The encoded event.
    pub payload: Vec<u8>,
    /// Headers, as stored.
    pub headers: Headers,
    /// When it may be delivered.
    pub due: Due,
    /// After this its handler is not called any more.
    pub deadline: Option<Deadline>,
    /// The dedup key of its event, kept with a record that is not due yet: to be free if that is cancelled.
    pub dedup_key: Option<String>,
}

/// Which records that are not due yet are cancelled.
#[derive(Clone, Debug)]
pub struct Cancel {
    /// That of the key.
    pub partition: Partition,
    /// What orders them.
    pub key: String,
    /// What they have in common.
    pub named: Named,
}

/// How a caller names an event.
#[derive(Clone, Debug)]
pub enum Named {
    /// By its id.
    Event(Uuid),
    /// By the dedup key with which it was scheduled.
    DedupKey(String),
}
