//! Lists for people, in pages: instances, partitions, stopped lanes, failed records.

use std::time::Duration;

use super::{
    SqlStore,
    dialect::Dialect,
    driver::{Driver, Kind, Row, Value},
    records::numbers,
    statements::{fill, list, safe},
};
use crate::{
    instance::Generation,
    partition::Partition,
    record::{Lane, RecordId, StopReason},
    store::{ErrorClass, FailedRecord, Filter, Instance, PartitionOwner, StoppedLane, StoreError},
};

impl<D: Driver> SqlStore<D> {
    pub(super) async fn list_instances(&self, limit: usize) -> Result<Vec<Instance>, StoreError> {
        const KINDS: &[Kind] =
            &[Kind::Text, Kind::Text, Kind::Text, Kind::Text, Kind::Int, Kind::Int, Kind::Int];
        let values = vec![Value::Int(limit as i64)];
        let rows = self.read("instances", safe(&self.sql.instances), values, KINDS).await?;
        let instances = rows.iter().filter_map(|row| {
            Some(Instance {
                id: row.text(0).parse().ok()?,
                name: row.text(1),
                version: row.text(2),
                state: row.text(3).parse().ok()?,
                started: micros(row.int(4)),
                last_beat: micros(row.int(5)),
                partitions: row.int(6) as usize,
            })
        });
        Ok(instances.collect())
    }

    pub(super) async fn list_partitions(&self) -> Result<Vec<PartitionOwner>, StoreError> {
        const KINDS: &[Kind] = &[Kind::Int, Kind::Text, Kind::Int, Kind::Int];
        let rows = self.read("partitions", safe(&self.sql.partitions), Vec::new(), KINDS).await?;
        let partitions = rows.iter().filter_map(|row| {
            Some(PartitionOwner {
                partition: Partition::new(row.int(0))?,
                owner: row.optional_text(1).and_then(|owner| owner.parse().ok()),
                generation: Generation(row.int(2)),
                claimed: row.optional_int(3).map(micros),
            })
        });
        Ok(partitions.collect())
    }

    pub(super) async fn list_stopped_lanes(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<StoppedLane>, StoreError> {
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
        let page = Page { filter, after, limit };
        let (matching, values) = page.conditions(&D::DIALECT, "l.", "record_id");
        let partitions = numbers(filter.partitions());
        let sql = fill(&self.sql.stopped_lanes, &[("{matching}", matching), ("{partitions}", partitions)]);
        let rows = self.read("stopped lanes", sql, values, KINDS).await?;
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
                since: micros(row.int(10)),
            })
        });
        lanes.collect()
    }

    pub(super) async fn list_failed(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<FailedRecord>, StoreError> {
        const KINDS: &[Kind] = &[
            Kind::Int,
            Kind::Uuid,
            Kind::Int,
            Kind::Text,
            Kind::Text,
            Kind::Text,
            Kind::Int,
            Kind::Text,
            Kind::Text,
            Kind::Bytes,
            Kind::Text,
            Kind::Int,
        ];
        // The page is found by ids alone: a database that sorts would otherwise sort payloads.
        let ids = self.list_failed_ids(filter, after, limit).await?;
        let sql = fill(&self.sql.failed, &[("{ids}", list(ids))]);
        let rows = self.read("failed", sql, Vec::new(), KINDS).await?;
        let failed = rows.iter().filter_map(|row| {
            let headers = row.optional_text(10);
            Some(FailedRecord {
                id: row.int(0),
                event_id: row.uuid(1)?,
                lane: lane(row, 2)?,
                record_type: row.text(5),
                attempts: u32::try_from(row.int(6)).unwrap_or(u32::MAX),
                last_error: row.optional_text(7),
                content_type: row.text(8),
                payload: row.bytes(9),
                headers: headers.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
                age: micros(row.int(11)),
            })
        });
        Ok(failed.collect())
    }

    pub(super) async fn list_failed_ids(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<RecordId>, StoreError> {
        let page = Page { filter, after, limit };
        let (matching, values) = page.conditions(&D::DIALECT, "", "id");
        let lists = [("{matching}", matching), ("{partitions}", numbers(filter.partitions()))];
        let sql = fill(&self.sql.failed_ids, &lists);
        let rows = self.read("failed ids", sql, values, &[Kind::Int]).await?;
        Ok(rows.iter().map(|row| row.int(0)).collect())
    }
}

/// One page of a list: the filter, the id after which it starts, and the limit.
#[derive(Clone, Copy)]
pub(super) struct Page<'a> {
    pub(super) filter: &'a Filter,
    pub(super) after: RecordId,
    pub(super) limit: usize,
}

impl Page<'_> {
    /// The text after `… > $1 AND`, and all values. Only the conditions of the filter are in the text, so
    /// that each combination has its own plan.
    pub(super) fn conditions(self, dialect: &Dialect, table: &str, id: &str) -> (String, Vec<Value>) {
        let mut values = vec![Value::Int(self.after)];
        let mut text = format!("{table}partition_no IN ({{partitions}})");
        let columns = [("record_key", &self.filter.key), ("handler", &self.filter.handler)];
        for (column, value) in
            columns.into_iter().filter_map(|(column, value)| Some((column, value.as_ref()?)))
        {
            values.push(value.as_str().into());
            text.push_str(&format!(" AND {table}{column} = {}", dialect.parameter(values.len())));
        }
        values.push(Value::Int(self.limit as i64));
        text.push_str(&format!(" ORDER BY {table}{id} LIMIT {}", dialect.parameter(values.len())));
        (text, values)
    }
}

pub(super) fn lane(row: &Row, first: usize) -> Option<Lane> {
    let partition = Partition::new(row.int(first))?;
    Some(Lane { partition, key: row.text(first + 1).into(), handler: row.text(first + 2).into() })
}

/// The reason of a stop. A reason that only a newer build knows is an error: leaving out such lanes would
/// hide them.
pub(super) fn reason(call: &'static str, row: &Row, column: usize) -> Result<StopReason, StoreError> {
    let word = row.text(column);
    let unknown = || {
        format!("a lane has the reason {word:?}, which this build does not know: use the build that wrote it")
    };
    StopReason::parse(&word).ok_or_else(|| StoreError::new(call, ErrorClass::Setup, unknown()))
}

pub(super) fn micros(count: i64) -> Duration {
    Duration::from_micros(u64::try_from(count).unwrap_or(0))
}
