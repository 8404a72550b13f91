//! What the next look may bring: memory is shared so that slow lanes leave room for the others.
//!
//! A lane that takes its records slower than they come fills the memory. When there is no more room, its
//! queue is cut down to a share, the rest goes back to the database, and its partition becomes *crowded*:
//! looks at all partitions leave it out, which the frontier allows, and it is looked at by itself
//! whenever its share is half used up. Once such a look brings all there is, the partition is like the
//! others again, and the next look at all of them asks where their head is.

use std::time::Duration;

use tokio::time::Instant;

use super::{DeliveryConfig, pipeline::Pipeline};
use crate::{
    partition::{Partition, PartitionSet},
    rules::pacing::{self, FetchLimits},
};

/// How many shares of one lane memory has.
const SHARES: usize = 16;
/// Memory that is full for less is only busy: no lane is too slow for it. Also the time between two
/// searches for lanes that are.
const BUSY_FOR: Duration = Duration::from_millis(20);

/// What the next look may bring.
pub(super) struct Room {
    pub(super) partitions: PartitionSet,
    pub(super) limit: usize,
    /// Not all owned partitions, but some by themselves.
    pub(super) part: bool,
}

/// The records of one lane that are queued when memory is full.
fn share(config: &DeliveryConfig) -> usize {
    (config.max_in_flight / SHARES).max(2)
}

impl Pipeline {
    /// What to look at, and for how many records. The last quarter of memory is kept for partitions
    /// that have nothing in it, a little for each look: however much waits for a few slow keys, the
    /// others are seen.
    pub(super) fn room(&mut self) -> Option<Room> {
        let DeliveryConfig { batch_size, max_in_flight, max_in_flight_bytes, .. } = self.config;
        let (records, bytes) = (self.lanes.in_flight(), self.lanes.in_flight_bytes());
        let share = share(&self.config);
        if let Some(partition) = self.hungry(share / 2) {
            let hungry = FetchLimits { batch_size: share, max_in_flight, max_in_flight_bytes };
            let limit = pacing::fetch_size(hungry, records, bytes, self.mean_bytes);
            let partitions = [partition].into_iter().collect();
            return (limit > 0).then_some(Room { partitions, limit, part: true });
        }
        if !(self.wanted || self.due_wanted) {
            return None;
        }
        let common = FetchLimits {
            batch_size,
            max_in_flight: max_in_flight - max_in_flight / 4,
            max_in_flight_bytes: max_in_flight_bytes - max_in_flight_bytes / 4,
        };
        let limit = pacing::fetch_size(common, records, bytes, self.mean_bytes);
        let most = pacing::fetch_size(common, 0, 0, self.mean_bytes);
        // A look for a few places costs as much as one for many: wait until half a batch has room.
        if records == 0 || limit >= most.div_ceil(2) {
            self.full_since = None;
            let partitions = self.ownership.owned().without(self.crowded);
            return (!partitions.is_empty()).then_some(Room { partitions, limit, part: false });
        }
        if self.full_since.get_or_insert_with(Instant::now).elapsed() >= BUSY_FOR {
            self.full_since = None;
            let crowded = self.lanes.cut_queues(share);
            crowded.iter().for_each(|partition| self.crowded.insert(partition));
            if !crowded.is_empty() {
                return self.room();
            }
        }
        let kept =
            FetchLimits { batch_size: (max_in_flight / 64).max(1), max_in_flight, max_in_flight_bytes };
        let limit = pacing::fetch_size(kept, records, bytes, self.mean_bytes);
        let looks = self.news && limit > 0;
        let idle = if looks { self.ownership.idle() } else { PartitionSet::EMPTY };
        (!idle.is_empty()).then_some(Room { partitions: idle, limit, part: true })
    }

    /// A crowded partition with so few records in memory, or with a lane that was released.
    fn hungry(&self, low: usize) -> Option<Partition> {
        let is_low = |partition: &Partition| {
            let few = self.ownership.permits(*partition) <= low || self.released.contains(*partition);
            self.ownership.is_open(*partition) && few
        };
        self.crowded.without(self.barren).iter().find(is_low)
    }

    /// A look at a part of the partitions brought all that they have.
    pub(super) fn crowded_no_more(&mut self, partitions: PartitionSet) {
        // Where a lane goes on in steps, the next look is worth while after the next step.
        let releasing = partitions.without(partitions.without(self.releases.partitions()));
        self.barren = self.barren.union(releasing);
        let crowded = self.crowded.without(partitions.without(releasing));
        if crowded != self.crowded {
            self.crowded = crowded;
            self.want();
        }
    }
}
