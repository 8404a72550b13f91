//! The partitions whose stops are known, and those whose stops are to be read again.

use crate::{
    instance::Generation,
    ownership::Ownership,
    partition::{PARTITION_COUNT, Partition, PartitionSet},
};

/// Reads the stops of a partition once when this instance begins to own it, and again when another process
/// may have released a lane.
pub(super) struct StopReads {
    /// The generation for which the stops of a partition were read. Written when a fetch has read them.
    read_for: [Generation; PARTITION_COUNT],
    /// Partitions whose stops are to be read again. Added by `again`, removed by `begin`.
    again: PartitionSet,
}

impl StopReads {
    pub(super) fn none() -> Self {
        Self { read_for: [Generation::default(); PARTITION_COUNT], again: PartitionSet::EMPTY }
    }

    pub(super) fn again(&mut self, partitions: PartitionSet) {
        self.again = self.again.union(partitions);
    }

    /// The partitions of `owned` whose stops are not known in their generation.
    pub(super) fn unread(&self, owned: PartitionSet, ownership: &Ownership) -> PartitionSet {
        owned.iter().filter(|partition| self.is_unread(*partition, ownership)).collect()
    }

    /// The partitions whose stops the next fetch reads. `of` are the partitions of the fetch. Known stops are
    /// read again even in hot partitions outside of `of`, because no fetch of all partitions covers those.
    pub(super) fn begin(&mut self, of: PartitionSet, ownership: &Ownership) -> PartitionSet {
        let read = self.again.iter().filter(|partition| {
            ownership.is_open(*partition)
                && (of.contains(*partition) || !self.is_unread(*partition, ownership))
        });
        let reads = self.unread(of, ownership).union(read.collect());
        self.again = self.again.without(reads);
        reads
    }

    /// The stops of these partitions were read in these generations.
    pub(super) fn end(&mut self, generations: &[(Partition, Generation)]) {
        for (partition, generation) in generations {
            self.read_for[partition.index()] = *generation;
        }
    }

    /// Whether the stops of a partition were read in this generation.
    pub(super) fn are_read(&self, partition: Partition, generation: Generation) -> bool {
        self.read_for[partition.index()] == generation
    }

    fn is_unread(&self, partition: Partition, ownership: &Ownership) -> bool {
        ownership.generation(partition) != Some(self.read_for[partition.index()])
    }
}
