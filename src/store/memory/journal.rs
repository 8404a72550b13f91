//! The committed writes, for a simulation that checks them after each step.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    instance::{Generation, InstanceId, InstanceState},
    partition::Partition,
    record::{Lane, RecordId, Status},
};

/// One committed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// A record has appeared.
    Stored {
        /// The id of the record.
        id: RecordId,
        /// The id of the event.
        event_id: Uuid,
        /// The lane of the record.
        lane: Lane,
        /// The first status: pending or delayed.
        status: Status,
    },
    /// A record has changed its status or its count of failures.
    Changed {
        /// The id of the record.
        id: RecordId,
        /// The new status; `None` if the row is deleted.
        status: Option<Status>,
        /// The count of failures.
        attempts: u32,
    },
    /// In claimed mode, a record was claimed, or its lease was renewed.
    RecordClaimed {
        /// The id of the record.
        id: RecordId,
        /// Who has claimed it.
        owner: InstanceId,
        /// The token of the claim.
        token: Generation,
        /// The time until the lease ends.
        left: Duration,
    },
    /// A claim of a record has ended.
    RecordUnclaimed {
        /// The id of the record.
        id: RecordId,
        /// The token of the claim.
        token: Generation,
    },
    /// A partition has another owner, or none.
    Claimed {
        /// The partition.
        partition: Partition,
        /// The new owner; `None` if the partition is free.
        owner: Option<InstanceId>,
        /// The generation of the claim.
        generation: Generation,
    },
    /// An instance has joined, or its state has changed.
    Member {
        /// The instance.
        instance: InstanceId,
        /// The new state.
        state: InstanceState,
    },
    /// The outcomes of an instance were refused, because its fence row is closed.
    Refused {
        /// The instance.
        instance: InstanceId,
    },
}

/// The writes that are not reported yet. `None` unless a client has conditions.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal(Option<Vec<Written>>);

impl Journal {
    pub(super) fn open(&mut self) {
        self.0.get_or_insert_default();
    }

    pub(super) fn push(&mut self, written: impl FnOnce() -> Written) {
        if let Some(journal) = &mut self.0 {
            journal.push(written());
        }
    }

    pub(super) fn take(&mut self) -> Vec<Written> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
