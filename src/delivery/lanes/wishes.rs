//! What the lanes want of the other stations. The dispatcher takes the wishes after each event.

use std::time::Duration;

use crate::{delivery::work::Write, partition::PartitionSet, record::RecordId, telemetry::Signal};

/// The wishes since they were last taken.
#[derive(Default)]
pub(in crate::delivery) struct Wishes {
    /// Writes for the settler.
    pub(in crate::delivery) writes: Vec<Write>,
    /// Signals for the observers.
    pub(in crate::delivery) signals: Vec<Signal>,
    /// Records whose tracked calls have ended.
    pub(in crate::delivery) tracks_ended: Vec<RecordId>,
    /// Pauses after which a record is due.
    pub(in crate::delivery) due_in: Vec<Duration>,
    /// Whether to fetch due records now.
    pub(in crate::delivery) due: bool,
    /// Whether there may be records that the last fetch has not seen.
    pub(in crate::delivery) fetch: bool,
    /// Whether the database failed in a call, so that the next fetch waits.
    pub(in crate::delivery) pause: bool,
    /// Partitions where a record below the watermark may be pending: one was requeued, or fetched and not
    /// admitted.
    pub(in crate::delivery) missed: PartitionSet,
    /// Partitions whose stops are to be read again.
    pub(in crate::delivery) stops: PartitionSet,
    /// Partitions with a released lane: they are fetched even if memory is full.
    pub(in crate::delivery) released: PartitionSet,
}

impl Wishes {
    /// A lane of these partitions goes on, perhaps in steps: its row says how far.
    pub(super) fn read_stops_of(&mut self, partition: PartitionSet) {
        self.stops = self.stops.union(partition);
        self.released = self.released.union(partition);
        self.fetch = true;
    }
}
