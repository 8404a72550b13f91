//! The calls of the admin, the published routes, and a schema that needs no tables.

use std::{cmp::Reverse, collections::BTreeMap, ops::Bound, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{outbox::Outbox, rows::Row, store::MemoryStore};
use crate::{
    handler::Route,
    instance::Claim,
    partition::Partition,
    record::{RecordId, Status},
    store::{
        AdminStore, Counts, FailedRecord, Filter, Instance, PartitionOwner, Repair, Rights, SchemaError,
        SchemaStore, StoppedLane, StoreError,
    },
};

#[async_trait]
impl AdminStore for MemoryStore {
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.call("counts", |outbox, _| {
            let mut records = BTreeMap::new();
            outbox.records.all().for_each(|(_, row)| *records.entry(row.status).or_default() += 1);
            let mut lanes = BTreeMap::new();
            let reasons = outbox.lanes.values().map(|row| row.reason);
            reasons.for_each(|reason| *lanes.entry(reason).or_default() += 1);
            Counts { records: records.into_iter().collect(), stopped_lanes: lanes.into_iter().collect() }
        })
        .await
    }

    async fn instances(&self, limit: usize) -> Result<Vec<Instance>, StoreError> {
        self.call("instances", |outbox, now| {
            let mut all: Vec<_> = outbox.instances.iter().collect();
            all.sort_by_key(|(id, row)| (!row.state.is_live(), Reverse(**id)));
            let claims = outbox.claims;
            let shown = all.into_iter().take(limit).map(|(id, row)| Instance {
                id: *id,
                name: row.name.clone(),
                version: row.version.clone(),
                state: row.state,
                started: now.saturating_duration_since(row.started),
                last_beat: now.saturating_duration_since(row.last_beat),
                partitions: claims.iter().filter(|claim| claim.owner == Some(*id)).count(),
            });
            shown.collect()
        })
        .await
    }

    async fn partitions(&self) -> Result<Vec<PartitionOwner>, StoreError> {
        self.call("partitions", |outbox, now| {
            let shown = Partition::all().map(|partition| {
                let Claim { owner, generation } = outbox.claims[partition.index()];
                let claimed = outbox.claimed[partition.index()].map(|at| now.saturating_duration_since(at));
                PartitionOwner { partition, owner, generation, claimed }
            });
            shown.collect()
        })
        .await
    }

    async fn stopped_lanes(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<StoppedLane>, StoreError> {
        self.call("stopped lanes", |outbox, now| {
            let rows = outbox.lanes.range((Bound::Excluded(after), Bound::Unbounded));
            let rows = rows.filter(|(_, stopped)| filter.fits(&stopped.lane)).take(limit);
            let lanes = rows.map(|(id, stopped)| {
                let record = outbox.records.get(*id);
                StoppedLane {
                    lane: stopped.lane.clone(),
                    reason: stopped.reason,
                    record: *id,
                    event_id: record.map(|row| row.new.event_id),
                    record_type: record.map(|row| row.new.record_type.to_string()),
                    attempts: record.map_or(0, |row| row.attempts),
                    last_error: record.and_then(|row| row.last_error.clone()),
                    held: stopped.held,
                    since: now.saturating_duration_since(stopped.since),
                }
            });
            lanes.collect()
        })
        .await
    }

    async fn failed(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<FailedRecord>, StoreError> {
        self.call("failed", |outbox, now| {
            failed(outbox, filter, after).take(limit).map(|(id, row)| failed_record(id, row, now)).collect()
        })
        .await
    }

    async fn failed_ids(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<RecordId>, StoreError> {
        self.call("failed ids", |outbox, _| {
            failed(outbox, filter, after).take(limit).map(|(id, _)| id).collect()
        })
        .await
    }

    async fn repair_all(&self, ids: &[RecordId], repair: &Repair) -> Result<usize, StoreError> {
        self.call("repair", |outbox, _| {
            let mut repaired = 0;
            for id in ids {
                let failed = outbox.records.get(*id).is_some_and(|row| row.status == Status::Failed);
                if failed && apply(outbox, *id, repair) {
                    outbox.starts.remove(id);
                    outbox.resume_lane(*id);
                    repaired += 1;
                }
            }
            repaired
        })
        .await
    }

    async fn purge(&self, older_than: Duration, dedup_older_than: Duration) -> Result<u64, StoreError> {
        self.call("purge", |outbox, now| {
            let completed = outbox.records.purge_completed(older_than, now);
            completed + outbox.purge_others(older_than, dedup_older_than, now)
        })
        .await
    }

    async fn publish_routes(&self, routes: &[Route]) -> Result<(), StoreError> {
        self.call("publish routes", |outbox, _| {
            outbox.cluster_changes += 1;
            outbox.routes.extend(routes.iter().cloned());
        })
        .await
    }

    async fn routes(&self) -> Result<Vec<Route>, StoreError> {
        self.call("routes", |outbox, _| outbox.routes.iter().cloned().collect()).await
    }

    async fn retire_handler(&self, handler: &str) -> Result<bool, StoreError> {
        self.call("retire handler", |outbox, _| {
            outbox.cluster_changes += 1;
            let before = outbox.routes.len();
            outbox.routes.retain(|route| route.handler != handler);
            outbox.routes.len() < before
        })
        .await
    }
}

fn failed<'a>(
    outbox: &'a Outbox,
    filter: &'a Filter,
    after: RecordId,
) -> impl Iterator<Item = (RecordId, &'a Row)> {
    let failed = outbox.records.all().filter(move |(id, row)| *id > after && row.status == Status::Failed);
    failed.filter(|(_, row)| filter.fits(&row.lane()))
}

fn failed_record(id: RecordId, row: &Row, now: Instant) -> FailedRecord {
    FailedRecord {
        id,
        event_id: row.new.event_id,
        lane: row.lane(),
        record_type: row.new.record_type.to_string(),
        attempts: row.attempts,
        last_error: row.last_error.clone(),
        content_type: row.new.content_type.to_string(),
        payload: row.new.payload.clone(),
        headers: row.new.headers.clone(),
        age: now.saturating_duration_since(row.created),
    }
}

fn apply(outbox: &mut Outbox, id: RecordId, repair: &Repair) -> bool {
    let again = |row: &mut Row| {
        row.status = Status::Pending;
        row.attempts = 0;
        (row.next_attempt, row.expires) = (None, None);
    };
    match repair {
        Repair::Retry => outbox.records.change(id, again),
        Repair::Replace(payload) => outbox.records.change(id, |row| {
            again(row);
            row.new.payload.clone_from(payload);
        }),
        Repair::Discard => outbox.records.remove(id).is_some(),
    }
}

#[async_trait]
impl SchemaStore for MemoryStore {
    async fn migrate(&self) -> Result<(), SchemaError> {
        self.call("migrate", |_, _| ()).await.map_err(SchemaError::from)
    }

    async fn check(&self) -> Result<(), SchemaError> {
        self.call("check", |_, _| ()).await.map_err(SchemaError::from)
    }

    async fn identity(&self) -> Result<String, StoreError> {
        self.call("identity", |_, _| format!("{:p}", std::sync::Arc::as_ptr(&self.client.shared))).await
    }

    fn grants(&self, _: Rights, _: &str) -> String {
        "-- an outbox in memory has no users\n".to_owned()
    }

    fn script(&self, _: i64) -> String {
        "-- an outbox in memory has no schema\n".to_owned()
    }
}
