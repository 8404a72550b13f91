//! What the delivery wing reads and writes.

use std::collections::HashSet;

use async_trait::async_trait;

use super::MemoryStore;
use crate::{
    partition::{Partition, PartitionSet},
    record::{Record, RecordId, Settlement, Stop},
    store::{CLOSED, Guard, RecordStore, Resolution, SettleError, Settled, StoreError},
};

#[async_trait]
impl RecordStore for MemoryStore {
    async fn fetch(
        &self,
        partitions: &[Partition],
        skip: &[RecordId],
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let skip: HashSet<RecordId> = skip.iter().copied().collect();
        self.call("fetch", |outbox, now| {
            let pending = partitions.iter().flat_map(|partition| outbox.records.pending(*partition, now));
            pending.filter(|record| !skip.contains(&record.delivery.id)).take(limit).collect()
        })
        .await
    }

    async fn due(
        &self,
        partitions: PartitionSet,
        skip: &[RecordId],
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let skip: HashSet<RecordId> = skip.iter().copied().collect();
        self.call("due", |outbox, now| {
            let due = partitions.iter().flat_map(|partition| outbox.records.due(partition, now));
            due.filter(|record| !skip.contains(&record.delivery.id)).take(limit).collect()
        })
        .await
    }

    async fn stops(&self, partitions: PartitionSet) -> Result<Vec<Stop>, StoreError> {
        self.call("stops", |outbox, _| {
            let stopped = outbox.lanes.iter().filter(|(_, row)| partitions.contains(row.lane.partition));
            let stop = |(id, row): (&RecordId, &super::outbox::StoppedRow)| Stop {
                lane: row.lane.clone(),
                reason: row.reason,
                record: *id,
                record_exists: outbox.records.get(*id).is_some(),
            };
            stopped.map(stop).collect()
        })
        .await
    }

    async fn settle(&self, guard: Guard, settlements: &[Settlement]) -> Result<Settled, SettleError> {
        let completed = self.completed;
        let written =
            self.call("settle", |outbox, now| outbox.settle(guard, settlements, completed, now)).await?;
        written.ok_or(SettleError::Fenced)
    }

    async fn resolve(&self, guard: Guard) -> Result<Resolution, StoreError> {
        self.call("resolve", |outbox, _| {
            outbox.raise_guard(guard);
            let counter = outbox.guards.get(&(guard.instance, guard.slot)).copied();
            guard.resolution(counter.unwrap_or(CLOSED))
        })
        .await
    }
}
