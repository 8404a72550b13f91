//! What was written, for a simulation that judges after each step.

use uuid::Uuid;

use crate::{
    instance::{Generation, InstanceId, InstanceState},
    partition::Partition,
    record::{Lane, RecordId, Status},
};

/// One write that is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// A record has appeared.
    Stored {
        /// Its id.
        id: RecordId,
        /// Its event.
        event_id: Uuid,
        /// Its lane.
        lane: Lane,
        /// Pending or delayed.
        status: Status,
    },
    /// A record has changed its status or its count of failures.
    Changed {
        /// Its id.
        id: RecordId,
        /// The status from now on; `None` if the row is gone.
        status: Option<Status>,
        /// Its failures.
        attempts: u32,
    },
    /// A partition has another owner, or none.
    Claimed {
        /// The partition.
        partition: Partition,
        /// Its owner from now on.
        owner: Option<InstanceId>,
        /// The generation of the claim.
        generation: Generation,
    },
    /// An instance has joined, or its state has changed.
    Member {
        /// The instance.
        instance: InstanceId,
        /// The state from now on.
        state: InstanceState,
    },
}

/// The writes that nobody has been told of yet. Kept only if somebody wants them.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal(Option<Vec<Written>>);

impl Journal {
    pub(super) fn open(&mut self) {
        self.0.get_or_insert_default();
    }

    pub(super) fn note(&mut self, written: impl FnOnce() -> Written) {
        if let Some(journal) = &mut self.0 {
            journal.push(written());
        }
    }

    pub(super) fn take(&mut self) -> Vec<Written> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
