//! What the lanes want of the other stations. The dispatcher takes the wishes and sees to each.

use std::time::Duration;

use crate::{delivery::work::Write, partition::PartitionSet, record::RecordId, telemetry::Signal};

/// Wishes since the last time that they were taken.
#[derive(Default)]
pub(in crate::delivery) struct Wishes {
    /// To be settled.
    pub(in crate::delivery) writes: Vec<Write>,
    /// To be told.
    pub(in crate::delivery) signals: Vec<Signal>,
    /// Records whose tracked calls have come to an end.
    pub(in crate::delivery) tracks_ended: Vec<RecordId>,
    /// Pauses after which a record is due.
    pub(in crate::delivery) due_in: Vec<Duration>,
    /// What is due is to be fetched now.
    pub(in crate::delivery) due: bool,
    /// There may be something that the last fetch has not seen.
    pub(in crate::delivery) fetch: bool,
    /// The database has failed around a call: the next fetch waits a little.
    pub(in crate::delivery) pause: bool,
    /// Where a record below the watermark may be pending: one was requeued, or fetched and not admitted.
    pub(in crate::delivery) missed: PartitionSet,
    /// Where stops are to be read again.
    pub(in crate::delivery) stops: PartitionSet,
    /// Where a lane was released: fetched however full memory is.
    pub(in crate::delivery) released: PartitionSet,
}

impl Wishes {
    /// Somebody has let a lane go on, perhaps in steps: its row says how far it is.
    pub(super) fn read_stops_of(&mut self, partition: PartitionSet) {
        self.stops = self.stops.union(partition);
        self.released = self.released.union(partition);
        self.fetch = true;
    }
}
