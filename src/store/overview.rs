//! Lists for people: instances, partitions, stopped lanes, failed records, and numbers of records.

use std::{fmt, time::Duration};

use uuid::Uuid;

use crate::{
    instance::{Generation, InstanceId, InstanceState},
    name::Name,
    partition::{Partition, PartitionSet},
    record::{Headers, Lane, RecordId, Status, StopReason},
};

/// Numbers of records and of stopped lanes, for people and alarms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// The number of records per status.
    pub records: Vec<(Status, u64)>,
    /// The number of stopped lanes per reason.
    pub stopped_lanes: Vec<(StopReason, u64)>,
}

impl Counts {
    /// The number of records with this status.
    pub fn of(&self, status: Status) -> u64 {
        self.records.iter().filter(|(found, _)| *found == status).map(|(_, count)| count).sum()
    }
}

/// An instance, as its row in `outbox_instance` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instance {
    /// The id of the instance.
    pub id: InstanceId,
    /// The setting `cluster.instance_name`, or the host name and the process id.
    pub name: String,
    /// The version of the library.
    pub version: String,
    /// Its state.
    pub state: InstanceState,
    /// The time since the instance joined.
    pub started: Duration,
    /// The time since the last heartbeat was written.
    pub last_beat: Duration,
    /// The number of owned partitions.
    pub partitions: usize,
}

/// A partition as its row in `outbox_partition` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionOwner {
    /// The number of the partition.
    pub partition: Partition,
    /// The owner; `None` if the partition is free.
    pub owner: Option<InstanceId>,
    /// The number of claims so far.
    pub generation: Generation,
    /// The time since the last claim; `None` if the partition was never claimed.
    pub claimed: Option<Duration>,
}

/// Selects stopped lanes or failed records: those that match every condition that is set. A filter by key or
/// by partition uses an index; a filter by handler alone reads all stopped lanes, or all failed records.
///
/// ```
/// use keylane::{admin::Filter, partition::Partition};
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
    /// No condition: everything matches.
    pub fn all() -> Self {
        Self::default()
    }

    /// Adds a condition: the handler has this id.
    #[must_use]
    pub fn handler(mut self, id: impl Into<Name>) -> Self {
        self.handler = Some(id.into());
        self
    }

    /// Adds a condition: the record key is this one.
    #[must_use]
    pub fn key(mut self, key: impl Into<Name>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a condition: the lane is in this partition.
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The partitions that a match can be in.
    pub(crate) fn partitions(&self) -> PartitionSet {
        let of_key = self.key.as_deref().map(Partition::of);
        let fits = |partition: &Partition| {
            [self.partition, of_key].into_iter().flatten().all(|wanted| wanted == *partition)
        };
        Partition::all().filter(fits).collect()
    }

    /// Whether a lane matches.
    pub(crate) fn fits(&self, lane: &Lane) -> bool {
        self.partitions().contains(lane.partition)
            && self.key.as_ref().is_none_or(|key| *key == lane.key)
            && self.handler.as_ref().is_none_or(|handler| *handler == lane.handler)
    }
}

/// The debug form says only whether a key is set, because keys can be personal data.
impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handler, key, partition } = self;
        let key_bytes = key.as_ref().map(|key| key.len());
        let mut text = f.debug_struct("Filter");
        text.field("handler", handler).field("key_bytes", &key_bytes).field("partition", partition).finish()
    }
}

/// A stopped lane.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoppedLane {
    /// The lane.
    pub lane: Lane,
    /// The reason of the stop.
    pub reason: StopReason,
    /// The record that has stopped the lane.
    pub record: RecordId,
    /// The identity of the record's event; `None` if the record is gone.
    pub event_id: Option<Uuid>,
    /// The type of the record; `None` if the record is gone.
    pub record_type: Option<String>,
    /// The number of failed attempts of the record.
    pub attempts: u32,
    /// The last error of the record, cut to 1,000 bytes.
    pub last_error: Option<String>,
    /// The number of records held behind it.
    pub held: u64,
    /// The time since the lane stopped.
    pub since: Duration,
}

/// A record that has failed for good.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedRecord {
    /// The id of the record.
    pub id: RecordId,
    /// The identity of its event.
    pub event_id: Uuid,
    /// Its lane.
    pub lane: Lane,
    /// Its record type.
    pub record_type: String,
    /// The number of failed attempts.
    pub attempts: u32,
    /// The last error, cut to 1,000 bytes.
    pub last_error: Option<String>,
    /// The media type of the payload.
    pub content_type: String,
    /// The encoded event.
    pub payload: Vec<u8>,
    /// The headers given at scheduling.
    pub headers: Headers,
    /// The time since the event was scheduled.
    pub age: Duration,
}

/// The debug form leaves out payloads, headers and errors, which can be personal data.
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
