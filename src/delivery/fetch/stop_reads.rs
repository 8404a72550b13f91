//! Of which partitions the stops are known, and of which they are to be read again.

use crate::{
    instance::Generation,
    ownership::Ownership,
    partition::{PARTITION_COUNT, Partition, PartitionSet},
};

/// The stops of a partition are read once, when this instance begins to own it, and then again when somebody
/// may have released one.
pub(super) struct StopReads {
    /// The generation for which the stops of a partition were read. Written when a fetch has read them.
    read_for: [Generation; PARTITION_COUNT],
    /// Partitions whose stops are to be read again. Until a fetch begins that reads them.
    again: PartitionSet,
}

impl StopReads {
    pub(super) fn none() -> Self {
        Self { read_for: [Generation::default(); PARTITION_COUNT], again: PartitionSet::EMPTY }
    }

    pub(super) fn again(&mut self, partitions: PartitionSet) {
        self.again = self.again.union(partitions);
    }

    /// Of these owned partitions, those of which no stop is known yet.
    pub(super) fn unread(&self, owned: PartitionSet, ownership: &Ownership) -> PartitionSet {
        owned.iter().filter(|partition| self.is_unread(*partition, ownership)).collect()
    }

    /// What the next fetch is to read, which is of these partitions. Those of hot partitions are read
    /// again too, which no fetch of all partitions covers.
    pub(super) fn begin(&mut self, of: PartitionSet, ownership: &Ownership) -> PartitionSet {
        let read = self.again.iter().filter(|partition| {
            ownership.is_open(*partition)
                && (of.contains(*partition) || !self.is_unread(*partition, ownership))
        });
        let reads = self.unread(of, ownership).union(read.collect());
        self.again = self.again.without(reads);
        reads
    }

    /// They were read while the partitions were owned in these generations.
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
