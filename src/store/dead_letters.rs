//! The table of dead letters: records that have failed for good, with their causes.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use super::{Filter, StoreError};
use crate::record::{Headers, Lane, RecordId};

/// The cause of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct DeadLetterCause {
    /// The number of attempts.
    pub attempts: u32,
    /// The target of the dead letter, such as a topic.
    pub target: String,
    /// The error and its causes on one line.
    pub error: String,
    /// The class of the error.
    pub class: Option<String>,
    /// What ended the last attempt.
    pub kind: &'static str,
}

/// A row of `outbox_dead_letter`: a record that has failed for good, and the cause.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The id of the record, whose row is deleted.
    pub id: RecordId,
    /// The identity of its event.
    pub event_id: Uuid,
    /// Its lane.
    pub lane: Lane,
    /// Its record type.
    pub record_type: String,
    /// The media type of the payload.
    pub content_type: String,
    /// The encoded event.
    pub payload: Vec<u8>,
    /// The headers given at scheduling.
    pub headers: Headers,
    /// The number of attempts.
    pub attempts: u32,
    /// The target of the dead letter, as its handler names it, such as a topic.
    pub target: String,
    /// The last error and its causes, cut to 1,000 bytes.
    pub error: String,
    /// The class of the error, if it has one.
    pub error_class: Option<String>,
    /// What ended the last attempt: `error`, `timeout`, `panic`, `decode` or `expired`.
    pub error_kind: String,
    /// The time since the event was scheduled.
    pub age: Duration,
    /// The time since the record failed.
    pub since: Duration,
}

/// The debug form leaves out payloads, headers and errors, which can be personal data.
impl fmt::Debug for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, event_id, lane, record_type, attempts, error_kind, payload, .. } = self;
        let mut text = f.debug_struct("DeadLetter");
        text.field("id", id).field("event_id", event_id).field("lane", lane);
        text.field("record_type", record_type).field("attempts", attempts).field("error_kind", error_kind);
        text.field("payload_bytes", &payload.len()).finish_non_exhaustive()
    }
}

/// The calls of dead letters.
#[async_trait]
#[doc(hidden)]
pub trait DeadLetterStore: Send + Sync + 'static {
    /// Copies a record into the table of dead letters, unless the copy exists or the record is gone.
    async fn copy_to_dead_letters(&self, id: RecordId, cause: &DeadLetterCause) -> Result<(), StoreError>;
    /// At most `limit` dead letters with an id above `after`, in id order.
    async fn dead_letters(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError>;
    /// The ids of the dead letters that [`dead_letters`](Self::dead_letters) returns.
    async fn dead_letter_ids(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<RecordId>, StoreError>;
    /// Deletes the dead letters of `ids` in one transaction. If `schedule` is set, schedules them again as
    /// new records, in the order of their ids, with their event ids. Returns the number of deleted dead
    /// letters.
    async fn take_dead_letters(&self, ids: &[RecordId], schedule: bool) -> Result<usize, StoreError>;
}
