//! What the stations hand to one another: records with their permits, and writes.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    ownership::Permit,
    record::{Record, RecordId, Settlement},
    rules::crashes::Care,
};

/// The place of a lane in the table of lanes. A lane keeps its place while it is stopped, a record of it is
/// in memory, or a write of it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LaneId(pub(super) u32);

/// A record in memory with its permit.
pub(super) struct Item {
    /// Shared with the call of its handler, which can outlast the item's place in its run.
    pub(super) record: Arc<Record>,
    /// Keeps the partition of the record from being handed over.
    pub(super) permit: Permit,
    /// Whether this record has stopped its lane, and its next attempt has come.
    pub(super) stops_lane: bool,
    /// How careful to run it.
    pub(super) care: Care,
    /// The deadline of the record, on the clock.
    pub(super) expires: Option<Duration>,
}

impl Item {
    pub(super) fn id(&self) -> RecordId {
        self.record.delivery.id
    }

    /// Whether the deadline has passed, so that the handler is not called any more.
    pub(super) fn has_expired(&self, now: Duration) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Items of one lane, in id order. Most keys have one record in memory, which needs no allocation.
pub(super) type Items = SmallVec<[Item; 1]>;

/// An outcome on its way to the database: what the lanes hand to the settler.
pub(super) struct Write {
    pub(super) settlement: Settlement,
    pub(super) origin: Origin,
}

/// The origin of a write. The permit is dropped when the write is durable.
pub(super) struct Origin {
    pub(super) lane: LaneId,
    /// `None` for a change of the lane alone, until the dispatcher asks for a permit.
    pub(super) permit: Option<Permit>,
    /// The last pause before a try, or zero if the database has not refused the write.
    pub(super) pause: Duration,
}

/// The writes of one settle. A settlement and its origin have the same index.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) settlements: Vec<Settlement>,
    pub(super) origins: Vec<Origin>,
}

impl Batch {
    /// An empty batch with the capacity for as many writes as this one has.
    pub(super) fn of_this_size(&self) -> Self {
        let (settlements, origins) = (Vec::with_capacity(self.len()), Vec::with_capacity(self.len()));
        Self { settlements, origins }
    }

    pub(super) fn push(&mut self, Write { settlement, origin }: Write) {
        self.settlements.push(settlement);
        self.origins.push(origin);
    }

    pub(super) fn len(&self) -> usize {
        self.settlements.len()
    }

    pub(super) fn writes(self) -> impl Iterator<Item = Write> {
        let pairs = self.settlements.into_iter().zip(self.origins);
        pairs.map(|(settlement, origin)| Write { settlement, origin })
    }
}
