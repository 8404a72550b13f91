//! What people do: look, mend, clear away; and the published routes.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use sqlx::AssertSqlSafe;
use std::sync::Arc;

use super::{
    SqlStore,
    call::{begin, commit, query},
    driver::{Driver, Kind, Row, Value},
    release::resume_lanes,
    statements::safe,
};
use crate::{
    handler::Route,
    partition::Partition,
    record::{Lane, RecordId, Status, StopReason},
    store::{AdminStore, Counts, ErrorClass, FailedRecord, Mend, StoppedLane, StoreError},
};

fn lane(row: &Row, first: usize) -> Option<Lane> {
    let partition = Partition::new(row.int(first))?;
    Some(Lane { partition, key: row.text(first + 1).into(), handler: row.text(first + 2).into() })
}

/// The reason why a lane stands still. A list without the lanes of a reason that only a newer build knows
/// would hide them.
fn reason(call: &'static str, row: &Row, column: usize) -> Result<StopReason, StoreError> {
    let word = row.text(column);
    let unknown = || {
        format!("a lane has the reason {word:?}, which this build does not know: use the build that wrote it")
    };
    StopReason::parse(&word).ok_or_else(|| StoreError::new(call, ErrorClass::Setup, unknown()))
}

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
        Ok(Counts { records: records.collect(), stopped_lanes })
    }

    async fn stopped_lanes(&self, after: RecordId, limit: usize) -> Result<Vec<StoppedLane>, StoreError> {
        const KINDS: &[Kind] = &[
            Kind::Int,
            Kind::Text,
            Kind::Text,
            Kind::Text,
            Kind::Int,
            Kind::Uuid,
            Kind::Text,
            Kind::Int,
            Kind::Text,
            Kind::Int,
            Kind::Int,
        ];
        let values = vec![after.into(), Value::Int(limit as i64)];
        let rows = self.read("stopped lanes", safe(&self.sql.stopped_lanes), values, KINDS).await?;
        let lanes = rows.iter().filter_map(|row| Some((row, lane(row, 0)?))).map(|(row, lane)| {
            Ok(StoppedLane {
                lane,
                reason: reason("stopped lanes", row, 3)?,
                record: row.int(4),
                event_id: row.uuid(5),
                record_type: row.optional_text(6),
                attempts: u32::try_from(row.int(7)).unwrap_or(u32::MAX),
                last_error: row.optional_text(8),
                held: row.int(9) as u64,
                since: Duration::from_micros(u64::try_from(row.int(10)).unwrap_or(0)),
            })
        });
        lanes.collect()
    }

    async fn failed(&self, after: RecordId, limit: usize) -> Result<Vec<FailedRecord>, StoreError> {
        const KINDS: &[Kind] =
            &[Kind::Int, Kind::Uuid, Kind::Int, Kind::Text, Kind::Text, Kind::Text, Kind::Int, Kind::Text];
        let values = vec![after.into(), Value::Int(limit as i64)];
        let rows = self.read("failed", safe(&self.sql.failed), values, KINDS).await?;
        let failed = rows.iter().filter_map(|row| {
            Some(FailedRecord {
                id: row.int(0),
                event_id: row.uuid(1)?,
                lane: lane(row, 2)?,
                record_type: row.text(5),
                attempts: u32::try_from(row.int(6)).unwrap_or(u32::MAX),
                last_error: row.optional_text(7),
            })
        });
        Ok(failed.collect())
    }

    async fn mend(&self, id: RecordId, mend: &Mend) -> Result<bool, StoreError> {
        let (sql, values) = match mend {
            Mend::Retry => (&self.sql.mend_retry, vec![id.into()]),
            Mend::Replace(payload) => (&self.sql.mend_replace, vec![payload.clone().into(), id.into()]),
            Mend::Discard => (&self.sql.mend_discard, vec![id.into()]),
        };
        self.call("mend", async {
            let mut conn = self.control.borrow().await?;
            begin::<D>(&mut conn).await?;
            let mended = D::execute(&mut conn, safe(sql), values).await? == 1;
            if mended {
                D::execute(&mut conn, safe(&self.sql.end_call), vec![id.into()]).await?;
                resume_lanes::<D>(&mut conn, &self.sql, &BTreeSet::from([id])).await?;
            }
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(mended)
        })
        .await
    }

    async fn purge(&self, older_than: Duration, dedup_older_than: Duration) -> Result<u64, StoreError> {
        self.purge_round(older_than, dedup_older_than).await
    }

    async fn publish_routes(&self, routes: &[Route]) -> Result<(), StoreError> {
        // In one transaction, the list before the word of it: who has heard of a change reads all of it.
        let mut sorted: Vec<&Route> = routes.iter().collect();
        sorted.sort_unstable();
        let json = serde_json::to_string(&sorted).map_err(|error| sqlx::Error::Encode(error.into()));
        self.call("publish routes", async {
            let mut conn = self.control.borrow().await?;
            begin::<D>(&mut conn).await?;
            D::execute(&mut conn, safe(&self.sql.publish_routes), vec![json?.into()]).await?;
            D::execute(&mut conn, safe(&self.sql.note_change), Vec::new()).await?;
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(())
        })
        .await
    }

    async fn routes(&self) -> Result<Vec<Route>, StoreError> {
        // Workers have a connection for it; who only schedules may be behind any pooler.
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
            D::execute(&mut conn, safe(&self.sql.note_change), Vec::new()).await?;
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(retired)
        });
        let retired = retired.await?;
        Ok(retired > 0)
    }
}

impl<D: Driver> SqlStore<D> {
    /// One query by itself.
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
