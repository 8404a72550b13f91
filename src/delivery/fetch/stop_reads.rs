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

/// The partitions whose stops a fetch reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StopsToRead {
    /// Partitions of the fetch whose stops are not known in their generation.
    pub(super) unread: PartitionSet,
    /// All, those above among them.
    pub(super) all: PartitionSet,
}

impl StopReads {
    pub(super) fn none() -> Self {
        Self { read_for: [Generation::default(); PARTITION_COUNT], again: PartitionSet::EMPTY }
    }

    pub(super) fn again(&mut self, partitions: PartitionSet) {
        self.again = self.again.union(partitions);
    }

    /// The partitions of `owned` whose stops are not known in their generation.
    fn unread(&self, owned: PartitionSet, ownership: &Ownership) -> PartitionSet {
        owned.iter().filter(|partition| self.is_unread(*partition, ownership)).collect()
    }

    /// What the next fetch reads, which is of the partitions `of`. Known stops are read again even in hot partitions
    /// outside of `of`, because no fetch of all partitions covers those.
    pub(super) fn begin(&mut self, of: PartitionSet, ownership: &Ownership) -> StopsToRead {
        let unread = self.unread(of, ownership);
        let read = self.again.iter().filter(|partition| {
            ownership.is_open(*partition)
                && (of.contains(*partition) || !self.is_unread(*partition, ownership))
        });
        let all = unread.union(read.collect());
        self.again = self.again.without(all);
        StopsToRead { unread, all }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::fixtures::{self, GENERATION};

    const NONE: PartitionSet = PartitionSet::EMPTY;

    #[tokio::test(start_paused = true)]
    async fn stops_are_read_once_per_generation_and_again_if_asked() {
        let (mut reads, ownership) = (StopReads::none(), fixtures::owning_all());
        let one: PartitionSet = [Partition::of("a")].into_iter().collect();
        let others = PartitionSet::ALL.without(one);
        let generations: Vec<_> = Partition::all().map(|partition| (partition, GENERATION)).collect();
        let read = |unread, all| StopsToRead { unread, all };
        assert_eq!(reads.begin(one, &ownership), read(one, one));
        assert!(!reads.are_read(Partition::of("a"), GENERATION), "not before the answer");
        reads.end(&generations[..]);
        assert!(reads.are_read(Partition::of("a"), GENERATION));
        assert!(!reads.are_read(Partition::of("a"), Generation(2)));
        assert_eq!(reads.begin(PartitionSet::ALL, &ownership), read(NONE, NONE));
        reads.again(one);
        assert_eq!(
            reads.begin(others, &ownership),
            read(NONE, one),
            "no fetch of all partitions may cover it"
        );
        assert_eq!(reads.begin(PartitionSet::ALL, &ownership), read(NONE, NONE), "once");
        ownership.grant(&[(Partition::of("a"), Generation(2))]);
        assert_eq!(reads.unread(PartitionSet::ALL, &ownership), one);
        reads.again(one);
        assert_eq!(reads.begin(others, &ownership), read(NONE, NONE), "what is unread waits for its fetch");
        assert_eq!(reads.begin(PartitionSet::ALL, &ownership), read(one, one));
    }
}
