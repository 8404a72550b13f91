//! What the stations hand to one another: records with the right to work on them, runs, and writes.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    ownership::Permit,
    record::{Record, RecordId, Settlement},
    rules::crashes::Care,
};

/// The place of a lane in the table of lanes. A lane keeps its place while a record of it is in memory, a
/// write of it is under way, or it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LaneId(pub(super) u32);

/// A record in memory with its right to be worked on.
pub(super) struct Item {
    /// Shared with the call of its handler, which may outlast the item's place in its run.
    pub(super) record: Arc<Record>,
    /// Counts the record among those that its partition cannot be handed over with.
    pub(super) permit: Permit,
    /// This record has stopped its lane, and its next attempt has come.
    pub(super) stops_lane: bool,
    /// What its process may risk with it.
    pub(super) care: Care,
    /// Its deadline, on the clock.
    pub(super) expires: Option<Duration>,
}

impl Item {
    pub(super) fn id(&self) -> RecordId {
        self.record.delivery.id
    }

    /// Whether its handler may not be called any more.
    pub(super) fn has_expired(&self, now: Duration) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Items of one lane, in their order. Most keys have one record in memory, which needs no allocation.
pub(super) type Items = SmallVec<[Item; 1]>;

/// An outcome on its way to the database: what the lanes hand to the settler.
pub(super) struct Write {
    pub(super) settlement: Settlement,
    pub(super) origin: Origin,
}

/// Where a write comes from. The permit goes when the write is durable.
pub(super) struct Origin {
    pub(super) lane: LaneId,
    /// `None` of a change of the lane alone, until the dispatcher asks for one.
    pub(super) permit: Option<Permit>,
    /// The last pause before another try, if the database has refused the write before.
    pub(super) pause: Duration,
}

/// Writes of one settle; the settlements and their origins have the same places.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) settlements: Vec<Settlement>,
    pub(super) origins: Vec<Origin>,
}

impl Batch {
    /// An empty batch with room for as many as this one has.
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
