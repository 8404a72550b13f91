//! The calls of the delivery wing.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;

use super::{
    outbox::{Outbox, StartRow},
    store::MemoryStore,
};
use crate::{
    instance::InstanceId,
    partition::{Partition, PartitionSet},
    record::{Record, RecordId, Settlement, Stop},
    rules::{
        horizon::{Bystanders, Head, Horizon, Server},
        witnesses::Witness,
    },
    store::{
        CLOSED, FenceRow, Handlers, IdScan, Pick, RecordStore, Resolution, SettleError, Settled, StoreError,
        Suspicion,
    },
};

#[async_trait]
impl RecordStore for MemoryStore {
    async fn fetch_by_partition(
        &self,
        partitions: &[Partition],
        pick: Pick<'_>,
    ) -> Result<Vec<Arc<Record>>, StoreError> {
        let skip: HashSet<RecordId> = pick.skip.iter().copied().collect();
        let is_wanted = |record: &Arc<Record>| is_wanted(record, &skip, pick.handlers);
        // Of all fetches, only those of a hot partition name a single one.
        let call = if partitions.len() == 1 { "fetch of one partition" } else { "fetch by partition" };
        self.call(call, |outbox, now| {
            let pending = partitions.iter().flat_map(|partition| outbox.records.pending(*partition, now));
            pending.filter(is_wanted).take(pick.limit).collect()
        })
        .await
    }

    async fn find_head(&self, partitions: PartitionSet, skip: &[RecordId]) -> Result<Head, StoreError> {
        self.call("find head", |outbox, _| {
            let number = Some(outbox.draw_number());
            Head { first: outbox.records.head(partitions, skip), horizon: outbox.horizon(), number }
        })
        .await
    }

    async fn draw_number(&self) -> Result<Option<(Witness, Server)>, StoreError> {
        self.call("draw number", |outbox, _| Some((outbox.witness(), outbox.server()))).await
    }

    async fn find_bystanders(&self, numbers: &[i64]) -> Result<Option<Bystanders>, StoreError> {
        self.call("find bystanders", |outbox, _| Some(outbox.bystanders(numbers))).await
    }

    async fn scan_by_id(&self, scan: IdScan<'_>) -> Result<(Vec<Arc<Record>>, Horizon), StoreError> {
        let skip: HashSet<RecordId> = scan.skip_above().into_iter().collect();
        let is_wanted = |record: &Arc<Record>| is_wanted(record, &skip, scan.pick.handlers);
        let call = if scan.within.is_empty() { "scan by id" } else { "scan of others" };
        self.call(call, |outbox, now| {
            let mut horizon = outbox.horizon();
            let ended =
                |number: &i64| horizon.snapshot.as_ref().is_some_and(|snapshot| snapshot.sees(*number));
            if scan.open.iter().any(ended) {
                return (Vec::new(), horizon);
            }
            let is_within = |id: &RecordId| {
                scan.within.is_empty() || scan.within.iter().any(|(first, last)| (first..=last).contains(&id))
            };
            let ids = scan.from..scan.from.saturating_add(scan.reach);
            horizon.visible = outbox.records.ids(ids.clone()).filter(is_within).take(scan.list).collect();
            let found = outbox.records.scan(scan.partitions, ids, now).filter(is_wanted);
            let found = found.filter(|record| is_within(&record.delivery.id));
            (found.take(scan.pick.limit).collect(), horizon)
        })
        .await
    }

    async fn fetch_due(
        &self,
        partitions: PartitionSet,
        pick: Pick<'_>,
    ) -> Result<(Vec<Arc<Record>>, i64), StoreError> {
        let skip: HashSet<RecordId> = pick.skip.iter().copied().collect();
        let is_wanted = |record: &Arc<Record>| is_wanted(record, &skip, pick.handlers);
        self.call("fetch due", |outbox, now| {
            let due = partitions.iter().flat_map(|partition| outbox.records.due(partition, now));
            let due = due.filter(is_wanted).filter(|record| !outbox.cancelling.contains(&record.delivery.id));
            (due.take(pick.limit).collect(), outbox.cluster_changes)
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
                released_to: row.released_to,
            };
            stopped.map(stop).collect()
        })
        .await
    }

    async fn suspicions(&self, partitions: PartitionSet) -> Result<Vec<Suspicion>, StoreError> {
        self.call("suspicions", |outbox, _| {
            let owners = partitions.iter().map(|partition| Suspicion {
                partition,
                record: None,
                crashes: outbox.crashes[partition.index()],
            });
            let calls = outbox.starts.iter().filter(|(_, start)| partitions.contains(start.partition));
            let calls = calls.map(|(id, start)| Suspicion {
                partition: start.partition,
                record: Some(*id),
                crashes: start.crashes,
            });
            owners.chain(calls).filter(|suspicion| suspicion.crashes > 0).collect()
        })
        .await
    }

    async fn track_call(&self, me: InstanceId, partition: Partition, id: RecordId) -> Result<(), StoreError> {
        self.call("track call", |outbox, _| {
            let start = outbox.starts.entry(id).or_insert(StartRow { partition, instance: None, crashes: 0 });
            start.instance = Some(me);
        })
        .await
    }

    async fn end_tracking(&self, id: RecordId) -> Result<(), StoreError> {
        self.call("end tracking", |outbox, _| {
            outbox.starts.remove(&id);
        })
        .await
    }

    async fn calm(&self, me: InstanceId, partitions: PartitionSet) -> Result<(), StoreError> {
        self.call("calm", |outbox, _| {
            let owned = |partition: &Partition| outbox.claims[partition.index()].owner == Some(me);
            let owned: Vec<Partition> = partitions.iter().filter(owned).collect();
            owned.iter().for_each(|partition| outbox.crashes[partition.index()] = 0);
            let Outbox { starts, records, .. } = outbox;
            starts.retain(|id, start| !partitions.contains(start.partition) || records.get(*id).is_some());
        })
        .await
    }

    async fn settle(&self, fence: FenceRow, settlements: &[Settlement]) -> Result<Settled, SettleError> {
        let completed = self.completed;
        let written =
            self.call("settle", |outbox, now| outbox.settle(fence, settlements, completed, now)).await?;
        written.ok_or(SettleError::Fenced)
    }

    async fn resolve(&self, fence: FenceRow) -> Result<Resolution, StoreError> {
        self.call("resolve", |outbox, _| {
            outbox.invalidate_fence(fence);
            let counter = outbox.fences.get(&(fence.instance, fence.slot)).copied();
            fence.resolution(counter.unwrap_or(CLOSED))
        })
        .await
    }
}

fn is_wanted(record: &Record, skip: &HashSet<RecordId>, handlers: &Handlers) -> bool {
    !skip.contains(&record.delivery.id) && handlers.include(&record.delivery.handler)
}
