//! What people are shown: instances, partitions, stopped lanes, failed records, and numbers of them.

use std::{fmt, time::Duration};

use uuid::Uuid;

use crate::{
    instance::{Generation, InstanceId, InstanceState},
    name::Name,
    partition::{Partition, PartitionSet},
    record::{Headers, Lane, RecordId, Status, StopReason},
};

/// Numbers of records, for people and alarms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Records by status.
    pub records: Vec<(Status, u64)>,
    /// Stopped lanes by reason.
    pub stopped_lanes: Vec<(StopReason, u64)>,
}

impl Counts {
    /// Records of this status.
    pub fn of(&self, status: Status) -> u64 {
        self.records.iter().filter(|(found, _)| *found == status).map(|(_, count)| count).sum()
    }
}

/// A process as its row in `outbox_instance` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instance {
    /// Who.
    pub id: InstanceId,
    /// Its `cluster.instance_name`, or the host name and the process id.
    pub name: String,
    /// The version of the library.
    pub version: String,
    /// Its state.
    pub state: InstanceState,
    /// How long ago it joined.
    pub started: Duration,
    /// How long ago its last heartbeat was written.
    pub last_beat: Duration,
    /// How many partitions it owns.
    pub partitions: usize,
}

/// A partition as its row in `outbox_partition` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionOwner {
    /// Which partition.
    pub partition: Partition,
    /// Who owns it; `None`: it is free.
    pub owner: Option<InstanceId>,
    /// How often its owner has changed.
    pub generation: Generation,
    /// How long ago the last owner claimed it; `None`: nobody has ever owned it.
    pub claimed: Option<Duration>,
}

/// Selects stopped lanes or failed records: those that fit everything that is set. A filter by key or by
/// partition uses an index; a filter by handler alone reads all lanes that stand still, or all records that
/// have failed.
///
/// ```
/// use keylane::{Partition, admin::Filter};
///
/// let of_mailer = Filter::all().handler("mailer");
/// let of_one_key = Filter::all().handler("mailer").key("order-42");
/// let of_neighbours = Filter::all().partition(Partition::of("order-42"));
/// # let _ = (of_mailer, of_one_key, of_neighbours);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub(crate) handler: Option<Name>,
    pub(crate) key: Option<Name>,
    partition: Option<Partition>,
}

impl Filter {
    /// All of them.
    pub fn all() -> Self {
        Self::default()
    }

    /// Those of this handler.
    #[must_use]
    pub fn handler(mut self, id: impl Into<Name>) -> Self {
        self.handler = Some(id.into());
        self
    }

    /// Those of this record key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Name>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Those in this partition.
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The partitions in which they can be.
    pub(crate) fn partitions(&self) -> PartitionSet {
        let of_key = self.key.as_deref().map(Partition::of);
        let fits = |partition: &Partition| {
            [self.partition, of_key].into_iter().flatten().all(|wanted| wanted == *partition)
        };
        Partition::all().filter(fits).collect()
    }

    /// Whether a lane is one of those.
    pub(crate) fn fits(&self, lane: &Lane) -> bool {
        self.partitions().contains(lane.partition)
            && self.key.as_ref().is_none_or(|key| *key == lane.key)
            && self.handler.as_ref().is_none_or(|handler| *handler == lane.handler)
    }
}

/// Keys can be personal data: the debug form says only that there is one.
impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handler, key, partition } = self;
        let key_bytes = key.as_ref().map(|key| key.len());
        let mut text = f.debug_struct("Filter");
        text.field("handler", handler).field("key_bytes", &key_bytes).field("partition", partition).finish()
    }
}

/// A lane that stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoppedLane {
    /// Which lane.
    pub lane: Lane,
    /// Why.
    pub reason: StopReason,
    /// The record that stops it.
    pub record: RecordId,
    /// The identity of its event.
    pub event_id: Option<Uuid>,
    /// Its record type.
    pub record_type: Option<String>,
    /// Its failed attempts.
    pub attempts: u32,
    /// The last error, cut to 1,000 bytes.
    pub last_error: Option<String>,
    /// Records held behind it.
    pub held: u64,
    /// How long it has stood still.
    pub since: Duration,
}

/// A record that has failed for good.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedRecord {
    /// The record.
    pub id: RecordId,
    /// The identity of its event.
    pub event_id: Uuid,
    /// Its lane.
    pub lane: Lane,
    /// Its record type.
    pub record_type: String,
    /// Its failed attempts.
    pub attempts: u32,
    /// The last error, cut to 1,000 bytes.
    pub last_error: Option<String>,
    /// The media type of the payload.
    pub content_type: String,
    /// The encoded event.
    pub payload: Vec<u8>,
    /// The headers given at scheduling.
    pub headers: Headers,
    /// How long ago it was scheduled.
    pub age: Duration,
}

/// Payloads, headers and errors can be personal data: the debug form has none of them.
impl fmt::Debug for FailedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, event_id, lane, record_type, attempts, payload, .. } = self;
        let mut text = f.debug_struct("FailedRecord");
        text.field("id", id)
            .field("event_id", event_id)
            .field("lane", lane)
            .field("record_type", record_type);
        text.field("attempts", attempts).field("payload_bytes", &payload.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_of_a_key_reads_one_partition() {
        let of_key = Filter::all().key("order-1");
        assert_eq!(of_key.partitions(), [Partition::of("order-1")].into_iter().collect());
        let elsewhere = Partition::all().find(|partition| *partition != Partition::of("order-1"));
        let nowhere = elsewhere.map(|partition| of_key.clone().partition(partition).partitions());
        assert_eq!(nowhere, Some(PartitionSet::EMPTY));
        assert_eq!(Filter::all().handler("mailer").partitions(), PartitionSet::ALL);
    }

    #[test]
    fn a_filter_shows_no_key() {
        let shown = format!("{:?}", Filter::all().key("alice@example.org"));
        assert!(!shown.contains("alice"), "{shown}");
    }
}
