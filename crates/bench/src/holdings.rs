//! The partitions that an instance owns, by its signals.

use keylane::{Observer, Signal, partition::PartitionSet};
use tokio::sync::watch;

/// Follows the signals of one instance.
pub(super) struct Holdings(watch::Sender<PartitionSet>);

impl Holdings {
    /// The observer, and what it knows.
    pub(super) fn new() -> (Self, watch::Receiver<PartitionSet>) {
        let (known, held) = watch::channel(PartitionSet::EMPTY);
        (Self(known), held)
    }
}

impl Observer for Holdings {
    fn on(&self, signal: &Signal) {
        match signal {
            Signal::PartitionsGranted { partitions } => {
                self.0.send_modify(|held| partitions.iter().for_each(|partition| held.insert(partition)));
            }
            Signal::PartitionsReleased { partitions } => {
                self.0.send_modify(|held| partitions.iter().for_each(|partition| held.remove(partition)));
            }
            Signal::Evicted { .. } | Signal::Left { .. } => {
                self.0.send_replace(PartitionSet::EMPTY);
            }
            _ => {}
        }
    }
}
