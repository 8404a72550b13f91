//! What may have crashed earlier owners: partitions whose calls are tracked, and records whose calls a
//! process did not survive; see [`crate::rules::crashes`]. No async, no IO.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::{
    partition::{Partition, PartitionSet},
    record::RecordId,
    rules::crashes::{self, Care},
    store::Suspicion,
};

/// The suspicions in the partitions of this instance.
pub(super) struct Suspects {
    /// The number of crashes at which a record fails. Never changes.
    limit: u32,
    /// Crashes of earlier owners per partition, and when they were read. Written by `take_list`, removed by
    /// `calm` and `end_where`.
    partitions: HashMap<Partition, (u32, Instant)>,
    /// Crashes per record. Written by `take_list`, removed by `end` and `end_where`.
    records: HashMap<RecordId, (Partition, u32)>,
}

impl Suspects {
    pub(super) fn new(limit: u32) -> Self {
        Self { limit, partitions: HashMap::new(), records: HashMap::new() }
    }

    /// Takes over the suspicions of these partitions. Returns the partitions whose calls are tracked from now
    /// on.
    pub(super) fn take_list(&mut self, of: PartitionSet, list: &[Suspicion], now: Instant) -> PartitionSet {
        self.end_where(|partition| of.contains(partition));
        for Suspicion { partition, record, crashes } in list {
            match record {
                None => drop(self.partitions.insert(*partition, (*crashes, now))),
                Some(record) => drop(self.records.insert(*record, (*partition, *crashes))),
            }
        }
        of.iter().filter(|partition| self.care(*partition, None) != Care::Usual).collect()
    }

    /// How careful to run a record of this partition.
    pub(super) fn care(&self, partition: Partition, record: Option<RecordId>) -> Care {
        let crashes = record.and_then(|record| self.records.get(&record)).map_or(0, |(_, crashes)| *crashes);
        let partition_crashes = self.partitions.get(&partition).map_or(0, |(crashes, _)| *crashes);
        crashes::care(partition_crashes, crashes, self.limit)
    }

    /// The crashes of a record that has met too many to be tried again.
    pub(super) fn spent(&self, record: RecordId) -> Option<u32> {
        let crashes = self.records.get(&record).map(|(_, crashes)| *crashes);
        crashes.filter(|crashes| crashes::is_spent(*crashes, self.limit))
    }

    /// The outcome of a record is durable. Returns whether the record was suspected.
    pub(super) fn end(&mut self, record: RecordId) -> bool {
        !self.records.is_empty() && self.records.remove(&record).is_some()
    }

    /// Partitions that were owned for `after` without a crash. They are no longer suspected.
    pub(super) fn calm(&mut self, after: Duration, now: Instant) -> PartitionSet {
        let is_calm = |(_, (_, since)): &(&Partition, &(u32, Instant))| now - *since >= after;
        let calm: PartitionSet =
            self.partitions.iter().filter(is_calm).map(|(partition, _)| *partition).collect();
        self.partitions.retain(|partition, _| !calm.contains(*partition));
        calm
    }

    /// Removes the suspicions of partitions that are not owned.
    pub(super) fn end_where(&mut self, closed: impl Fn(Partition) -> bool) {
        self.partitions.retain(|partition, _| !closed(*partition));
        self.records.retain(|_, (partition, _)| !closed(*partition));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspicion(record: Option<RecordId>, crashes: u32) -> Suspicion {
        Suspicion { partition: Partition::of("a"), record, crashes }
    }

    fn suspects(list: &[Suspicion]) -> (Suspects, PartitionSet) {
        let mut suspects = Suspects::new(3);
        let tracked = suspects.take_list(PartitionSet::ALL, list, Instant::now());
        (suspects, tracked)
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_is_calm_after_a_while_but_what_a_crash_has_met_stays_suspected() {
        let (mut suspects, tracked) = suspects(&[suspicion(None, 2), suspicion(Some(7), 1)]);
        let partition = Partition::of("a");
        assert_eq!(tracked, [partition].into_iter().collect());
        assert_eq!(suspects.care(partition, Some(1)), Care::Tracked);
        let after = Duration::from_secs(60);
        assert!(suspects.calm(after, Instant::now()).is_empty());
        tokio::time::advance(after).await;
        assert_eq!(suspects.calm(after, Instant::now()), tracked);
        assert_eq!(suspects.care(partition, Some(1)), Care::Usual);
        assert_eq!(suspects.care(partition, Some(7)), Care::Alone);
        assert!(suspects.end(7) && !suspects.end(7));
        assert_eq!(suspects.care(partition, Some(7)), Care::Usual);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_list_replaces_the_old_one() {
        let (mut suspects, _) = suspects(&[suspicion(None, 2), suspicion(Some(7), 3)]);
        assert_eq!(suspects.spent(7), Some(3));
        assert!(suspects.take_list(PartitionSet::ALL, &[], Instant::now()).is_empty());
        assert_eq!(suspects.spent(7), None);
    }
}
