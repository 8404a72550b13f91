//! The calls of the admin, and the published routes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use super::{
    SqlStore,
    call::{begin, commit, query},
    driver::{Driver, Kind, Row, Value},
    overview::reason,
    release::resume_lanes,
    statements::{fill, list, safe},
};
use crate::{
    handler::Route,
    record::{RecordId, Status},
    store::{
        AdminStore, Counts, FailedRecord, Filter, Instance, PartitionOwner, Repair, StoppedLane, StoreError,
    },
};

#[async_trait]
impl<D: Driver> AdminStore for SqlStore<D> {
    async fn counts(&self) -> Result<Counts, StoreError> {
        let records = self.read("counts", safe(&self.sql.counts), vec![], &[Kind::Int, Kind::Int]).await?;
        let lanes =
            self.read("counts", safe(&self.sql.count_lanes), vec![], &[Kind::Text, Kind::Int]).await?;
        let records =
            records.iter().filter_map(|row| Some((Status::from_code(row.int(0))?, row.int(1) as u64)));
        let lanes = lanes.iter().map(|row| Ok((reason("counts", row, 0)?, row.int(1) as u64)));
        let mut stopped_lanes = lanes.collect::<Result<Vec<_>, StoreError>>()?;
        stopped_lanes.sort_unstable();
        let mut records: Vec<_> = records.collect();
        records.sort_unstable();
        Ok(Counts { records, stopped_lanes })
    }

    async fn instances(&self, limit: usize) -> Result<Vec<Instance>, StoreError> {
        self.list_instances(limit).await
    }

    async fn partitions(&self) -> Result<Vec<PartitionOwner>, StoreError> {
        self.list_partitions().await
    }

    async fn stopped_lanes(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<StoppedLane>, StoreError> {
        self.list_stopped_lanes(filter, after, limit).await
    }

    async fn failed(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<FailedRecord>, StoreError> {
        self.list_failed(filter, after, limit).await
    }

    async fn failed_ids(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<RecordId>, StoreError> {
        self.list_failed_ids(filter, after, limit).await
    }

    async fn repair_all(&self, ids: &[RecordId], repair: &Repair) -> Result<usize, StoreError> {
        let (sql, values) = match repair {
            Repair::Retry => (&self.sql.repair_retry, vec![]),
            Repair::Replace(payload) => (&self.sql.repair_replace, vec![payload.clone().into()]),
            Repair::Discard => (&self.sql.repair_discard, vec![]),
        };
        self.call("repair", async {
            let mut conn = self.control.borrow().await?;
            begin::<D>(&mut conn).await?;
            let named = [("{ids}", list(ids.iter().copied()))];
            let lock = fill(&self.sql.lock_failed, &named);
            let rows = query::<D>(&mut conn, lock, Vec::new(), &[Kind::Int]).await?;
            let failed: BTreeSet<RecordId> = rows.iter().map(|row| row.int(0)).collect();
            if !failed.is_empty() {
                let failed_ids = [("{ids}", list(failed.iter().copied()))];
                D::execute(&mut conn, fill(sql, &failed_ids), values).await?;
                D::execute(&mut conn, fill(&self.sql.end_tracking_of, &failed_ids), Vec::new()).await?;
                resume_lanes::<D>(&mut conn, &self.sql, &failed).await?;
            }
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(failed.len())
        })
        .await
    }

    async fn purge(&self, older_than: Duration, dedup_older_than: Duration) -> Result<u64, StoreError> {
        self.purge_round(older_than, dedup_older_than).await
    }

    async fn publish_routes(&self, routes: &[Route]) -> Result<(), StoreError> {
        // One transaction writes the list first and then the count of changes: a reader who sees the new
        // count reads the whole list.
        let mut sorted: Vec<&Route> = routes.iter().collect();
        sorted.sort_unstable();
        let json = serde_json::to_string(&sorted).map_err(|error| sqlx::Error::Encode(error.into()));
        self.call("publish routes", async {
            let mut conn = self.control.borrow().await?;
            begin::<D>(&mut conn).await?;
            D::execute(&mut conn, safe(&self.sql.publish_routes), vec![json?.into()]).await?;
            D::execute(&mut conn, safe(&self.sql.count_change), Vec::new()).await?;
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(())
        })
        .await
    }

    async fn routes(&self) -> Result<Vec<Route>, StoreError> {
        // Workers have the control connection. A process that only schedules may be behind any pooler, so it
        // uses the plain one.
        let link = if self.proof.is_given() { &self.control } else { &self.plain };
        let rows = self.call("routes", async {
            let mut conn = link.borrow().await?;
            let rows = D::query_text(&mut conn, safe(&self.sql.routes), &[Kind::Text, Kind::Text]).await?;
            conn.keep();
            Ok(rows)
        });
        let rows = rows.await?;
        Ok(rows.iter().map(|row| Route { record_type: row.text(0), handler: row.text(1) }).collect())
    }

    async fn retire_handler(&self, handler: &str) -> Result<bool, StoreError> {
        let retired = self.call("retire handler", async {
            let mut conn = self.control.borrow().await?;
            begin::<D>(&mut conn).await?;
            let retired = D::execute(&mut conn, safe(&self.sql.retire_handler), vec![handler.into()]).await?;
            D::execute(&mut conn, safe(&self.sql.count_change), Vec::new()).await?;
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(retired)
        });
        let retired = retired.await?;
        Ok(retired > 0)
    }
}

impl<D: Driver> SqlStore<D> {
    /// Runs one query outside of a transaction.
    pub(super) async fn read(
        &self,
        name: &'static str,
        sql: AssertSqlSafe<Arc<str>>,
        values: Vec<Value>,
        kinds: &'static [Kind],
    ) -> Result<Vec<Row>, StoreError> {
        self.call(name, async {
            let mut conn = self.control.borrow().await?;
            let rows = query::<D>(&mut conn, sql, values, kinds).await?;
            conn.keep();
            Ok(rows)
        })
        .await
    }
}
