//! Reading records and settling lost replies.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;

use super::{
    SqlStore,
    call::query,
    cancel::still_due,
    driver::{Driver, Kind, Value},
    statements::{fill, list, safe},
};
use crate::{
    instance::InstanceId,
    partition::{Partition, PartitionSet},
    record::{Lane, Record, RecordId, Settlement, Stop, StopReason},
    rules::{
        horizon::{Bystanders, Head, Horizon, Server},
        witnesses::Witness,
    },
    store::{
        CLOSED, FenceRow, IdScan, Pick, RecordStore, Resolution, SettleError, Settled, StoreError, Suspicion,
    },
};

#[async_trait]
impl<D: Driver> RecordStore for SqlStore<D> {
    async fn fetch_by_partition(
        &self,
        partitions: &[Partition],
        pick: Pick<'_>,
    ) -> Result<Vec<Arc<Record>>, StoreError> {
        self.read_patiently("fetch by partition", async {
            let mut conn = self.poll.borrow().await?;
            let sql = &self.sql.fetch_by_partition;
            let records = D::fetch_by_partition(&mut conn, sql, partitions, pick).await?;
            conn.keep();
            Ok(records)
        })
        .await
    }

    async fn find_head(&self, partitions: PartitionSet, skip: &[RecordId]) -> Result<Head, StoreError> {
        self.read_patiently("find head", async {
            let mut conn = self.poll.borrow().await?;
            let head = D::find_head(&mut conn, &self.sql, partitions, skip).await?;
            conn.keep();
            Ok(head)
        })
        .await
    }

    async fn draw_number(&self) -> Result<Option<(Witness, Server)>, StoreError> {
        self.call("draw number", async {
            let mut conn = self.poll.borrow().await?;
            let witness = D::draw_number(&mut conn, &self.sql).await?;
            conn.keep();
            Ok(witness)
        })
        .await
    }

    async fn find_bystanders(&self, numbers: &[i64]) -> Result<Option<Bystanders>, StoreError> {
        self.call("find bystanders", async {
            let mut conn = self.poll.borrow().await?;
            let found = D::find_bystanders(&mut conn, &self.sql, numbers).await?;
            conn.keep();
            Ok(found)
        })
        .await
    }

    async fn scan_by_id(&self, scan: IdScan<'_>) -> Result<(Vec<Arc<Record>>, Horizon), StoreError> {
        self.read_patiently("scan by id", async {
            let mut conn = self.poll.borrow().await?;
            let scanned = D::scan_by_id(&mut conn, &self.sql, scan).await?;
            conn.keep();
            Ok(scanned)
        })
        .await
    }

    async fn version(&self) -> Result<Option<i64>, StoreError> {
        let Some(sql) = D::VERSION else { return Ok(None) };
        self.call("version", async {
            let mut conn = self.poll.borrow().await?;
            let rows = query::<D>(&mut conn, safe(&Arc::from(sql)), Vec::new(), &[Kind::Int]).await?;
            conn.keep();
            Ok(rows.first().map(|row| row.int(0)))
        })
        .await
    }

    async fn fetch_due(
        &self,
        partitions: PartitionSet,
        pick: Pick<'_>,
    ) -> Result<(Vec<Arc<Record>>, i64), StoreError> {
        self.read_patiently("fetch due", async {
            let mut conn = self.poll.borrow().await?;
            let (mut records, mut skip) = (Vec::new(), Cow::Borrowed(pick.skip));
            let changes = loop {
                let limit = pick.limit - records.len();
                let pick = Pick { skip: &skip, limit, ..pick };
                let (found, changes) = D::fetch_due(&mut conn, &self.sql.fetch_due, partitions, pick).await?;
                let full = found.len() >= limit;
                let (kept, gone) = still_due::<D>(&mut conn, &self.sql, found).await?;
                records.extend(kept);
                if gone.is_empty() || !full {
                    break changes;
                }
                // Replaces the records that are being cancelled by others that are due.
                skip.to_mut().extend(gone);
                skip.to_mut().extend(records.iter().map(|record: &Arc<Record>| record.delivery.id));
            };
            conn.keep();
            Ok((records, changes))
        })
        .await
    }

    async fn stops(&self, partitions: PartitionSet) -> Result<Vec<Stop>, StoreError> {
        const KINDS: &[Kind] =
            &[Kind::Int, Kind::Text, Kind::Text, Kind::Text, Kind::Int, Kind::Int, Kind::Int];
        let sql = fill(&self.sql.stops, &[("{partitions}", numbers(partitions))]);
        let rows = self
            .read_patiently("stops", async {
                let mut conn = self.poll.borrow().await?;
                let rows = query::<D>(&mut conn, sql, Vec::new(), KINDS).await?;
                conn.keep();
                Ok(rows)
            })
            .await?;
        let stops = rows.iter().filter_map(|row| {
            let (key, handler) = (row.text(1).into(), row.text(2).into());
            let lane = Lane { partition: Partition::new(row.int(0))?, key, handler };
            let reason = StopReason::parse(&row.text(3))?;
            let (record_exists, released_to) = (row.int(5) == 1, row.int(6));
            Some(Stop { lane, reason, record: row.int(4), record_exists, released_to })
        });
        Ok(stops.collect())
    }

    async fn suspicions(&self, partitions: PartitionSet) -> Result<Vec<Suspicion>, StoreError> {
        const KINDS: &[Kind] = &[Kind::Int, Kind::Int, Kind::Int];
        let lists = [("{partitions}", numbers(partitions))];
        let rows = self.read("suspicions", fill(&self.sql.suspicions, &lists), vec![], KINDS).await?;
        let suspicions = rows.iter().filter_map(|row| {
            let crashes = u32::try_from(row.int(1)).unwrap_or(u32::MAX);
            Some(Suspicion { partition: Partition::new(row.int(0))?, record: row.optional_int(2), crashes })
        });
        Ok(suspicions.collect())
    }

    async fn track_call(&self, me: InstanceId, partition: Partition, id: RecordId) -> Result<(), StoreError> {
        let values = vec![id.into(), i64::from(partition.number()).into(), me.to_string().into()];
        self.write("track call", &self.sql.track_call, values).await.map(drop)
    }

    async fn end_tracking(&self, id: RecordId) -> Result<(), StoreError> {
        self.write("end tracking", &self.sql.end_tracking, vec![id.into()]).await.map(drop)
    }

    async fn calm(&self, me: InstanceId, partitions: PartitionSet) -> Result<(), StoreError> {
        let lists = [("{partitions}", numbers(partitions))];
        self.call("calm", async {
            let mut conn = self.control.borrow().await?;
            let calm = fill(&self.sql.calm_partitions, &lists);
            D::execute(&mut conn, calm, vec![me.to_string().into()]).await?;
            let find = fill(&self.sql.calls_of_gone, &lists);
            let gone = query::<D>(&mut conn, find, Vec::new(), &[Kind::Int]).await?;
            if !gone.is_empty() {
                let gone = [("{ids}", list(gone.iter().map(|row| row.int(0))))];
                D::execute(&mut conn, fill(&self.sql.end_tracking_of, &gone), Vec::new()).await?;
            }
            conn.keep();
            Ok(())
        })
        .await
    }

    async fn settle(&self, fence: FenceRow, settlements: &[Settlement]) -> Result<Settled, SettleError> {
        self.settle_batch(fence, settlements).await
    }

    async fn resolve(&self, fence: FenceRow) -> Result<Resolution, StoreError> {
        let who = || vec![Value::from(fence.instance.to_string()), Value::Int(i64::from(fence.slot))];
        self.call("resolve", async {
            let mut conn = self.settle.borrow().await?;
            let mut invalidate = who();
            invalidate.push(Value::Int(fence.counter));
            D::execute(&mut conn, safe(&self.sql.invalidate_fence), invalidate).await?;
            let rows = query::<D>(&mut conn, safe(&self.sql.read_fence), who(), &[Kind::Int]).await?;
            conn.keep();
            Ok(fence.resolution(rows.first().map_or(CLOSED, |row| row.int(0))))
        })
        .await
    }
}

pub(super) fn numbers(partitions: PartitionSet) -> String {
    list(partitions.iter().map(|partition| i64::from(partition.number())))
}
